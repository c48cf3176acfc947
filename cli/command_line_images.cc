// The command line of `stasis images`.
#include "cli/command_line.h"

namespace stasis {
namespace {

constexpr char kImagesFooter[] =
    R"(An image is named TASK/ID; TASK alone means its newest. Images share what they have in common: removing one frees what no
other names, once `stasis images gc` has collected it.

Examples:
  stasis images ls
  stasis images show train
  stasis images verify
  stasis images export train/000002 train.stasis
  stasis images rm train/000001 && stasis images gc

`stasis images VERB --help` explains a verb.)";

constexpr char kLsFooter[] =
    R"(DEVICE is the device memory of the task, SIZE all that is in the image, STORED what that takes on disk after what is equal
was stored once and compressed, FREES what of it no other image shares. TASK is the state of the task, as in `stasis ps`.

Examples:
  stasis images ls
  stasis images ls train --json)";

constexpr char kShowFooter[] =
    R"(Then what a restore needs on this machine, each met, not met, or unknown until it is tried. Nothing is touched for it.

Examples:
  stasis images show train
  stasis images show train/000002 --json)";

constexpr char kVerifyFooter[] =
    R"(Reads and checks every byte. Exits with 11 when something is damaged, and names file and offset. Tasks may go on meanwhile,
and checkpoints too.

Examples:
  stasis images verify
  stasis images verify train/000002)";

constexpr char kRmFooter[] =
    R"(Refused without --force for the last good image of a task that does not run: there would be no way back. The room comes
back with `stasis images gc`. `stasis rm TASK` forgets a task with all of its images.

Example:
  stasis images rm train/000001 train/000002)";

constexpr char kGcFooter[] =
    R"(Removes what no image names. Safe beside running checkpoints and restores; what they use is left for the next time.

Example:
  stasis images gc)";

constexpr char kExportFooter[] =
    R"(The file holds all that the image needs, and can be copied to another site. It is as secret as the program's memory.

Example:
  stasis images export train train.stasis)";

constexpr char kImportFooter[] =
    R"(Checks every byte first. The task is put on record when it is not yet, so that `stasis restore` brings it back here.
Only import files of people whose programs you would run: restoring one runs the program in it.

Examples:
  stasis images import train.stasis
  stasis images import train.stasis --as train-copy)";

constexpr char kCopyFooter[] =
    R"(The agent here sends it; the job itself is not touched. Should this node be lost, `stasis restore JOB` on the other one
brings the job back from it. The newest two copies of a job stay there.

Examples:
  stasis images copy train --to node7:7470
  stasis images copy train 000003 --to node7:7470 --keep 1)";

constexpr char kKeygenFooter[] =
    R"(The file it makes, the identity, is what restores images that are encrypted to the key; whoever restores names it by
STASIS_IDENTITY. Keep it off the nodes that only write images, and keep a copy: without it the images are lost.

Example:
  stasis images keygen ~/stasis.identity)";

constexpr char kEncryptToFooter[] =
    R"(From then on whatever writes images on this node encrypts them to these keys: checkpoints, schedules, migrations that
arrive, memory of paused tasks that is put on disk. Images that are there stay as they are. Without KEY it says who the
images are encrypted to.

Examples:
  stasis images encrypt-to stasis-public-5f0c...
  stasis images encrypt-to
  stasis images encrypt-to --off)";

std::string NotEmpty(const std::string& text) { return text.empty() ? "the name is empty" : ""; }

}  // namespace

void CommandLine::AddImages() {
  CLI::App* images = app_.add_subcommand("images", "list, check, remove, copy, export and import images");
  images->footer(kImagesFooter);
  images->require_subcommand(1);

  CLI::App* ls = AddVerbTo(images, "ls", "list images, with what they take", kLsFooter);
  ls->add_option("NAME", options_.name, "only those of this task")->check(NotEmpty);
  ls->add_flag("-a,--all", options_.all, "also what is stored of paused tasks");

  CLI::App* show = AddVerbTo(images, "show", "say what is in an image, and what it needs", kShowFooter);
  show->add_option("IMAGE", options_.target, "TASK/ID, or TASK for its newest")->required();

  CLI::App* verify =
      AddVerbTo(images, "verify", "check every byte of the store, or of one image", kVerifyFooter);
  verify
      ->add_option("IMAGE", options_.target,
                   "TASK/ID, or TASK for all of its images (default: the whole store)")
      ->check(NotEmpty);

  CLI::App* rm = AddVerbTo(images, "rm", "remove images", kRmFooter);
  rm->add_option("IMAGE", options_.images, "TASK/ID")->required();
  rm->add_flag("-f,--force", options_.force, "also the last good image of a task that does not run");

  AddVerbTo(images, "gc", "give back the room of what no image names", kGcFooter);

  CLI::App* copy = AddVerbTo(images, "copy", "put a copy of an image into another node's store", kCopyFooter);
  AddNode(copy);
  copy->add_option("NAME", options_.name, "the task or job")->required();
  copy->add_option("ID", options_.target, "of the image (default: the newest)");
  copy->add_option("--to", options_.to, "agent of the other node, as host:port")
      ->type_name("NODE")
      ->required();
  copy->add_option("--keep", options_.keep, "copies of the job that stay there, the newest (default 2)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");

  CLI::App* export_verb = AddVerbTo(images, "export", "write an image as one file", kExportFooter);
  export_verb->add_option("IMAGE", options_.target, "TASK/ID, or TASK for its newest")->required();
  export_verb->add_option("FILE", options_.file, "a file that does not exist yet")->required();

  CLI::App* import = AddVerbTo(images, "import", "take an exported image in", kImportFooter);
  import->add_option("FILE", options_.file, "what `stasis images export` wrote")->required();
  import->add_option("--as", options_.as, "name of the task here (default: as it was exported)")
      ->type_name("NAME");

  CLI::App* keygen = AddVerbTo(images, "keygen", "make a key that images can be encrypted to", kKeygenFooter);
  keygen->add_option("FILE", options_.file, "the identity: a file that does not exist yet")->required();

  CLI::App* encrypt =
      AddVerbTo(images, "encrypt-to", "encrypt the images that this node writes", kEncryptToFooter);
  CLI::Option* keys = encrypt->add_option("KEY", options_.images, "public key, as `images keygen` prints it");
  encrypt->add_flag("--off", options_.force, "to nobody: what is written is not encrypted")->excludes(keys);
}

}  // namespace stasis
