// `stasis images`: which of its verbs, and what they have in common.
#include "cli/images.h"

namespace stasis {
namespace {

struct SubVerb {
  const char* name;
  int (*run)(const Options&, Context&);
};

constexpr SubVerb kSubVerbs[] = {
    {"ls", ImagesLsVerb},         {"show", ImagesShowVerb},
    {"verify", ImagesVerifyVerb}, {"rm", ImagesRmVerb},
    {"gc", ImagesGcVerb},         {"copy", ImagesCopyVerb},
    {"export", ImagesExportVerb}, {"import", ImagesImportVerb},
    {"keygen", ImagesKeygenVerb}, {"encrypt-to", ImagesEncryptToVerb},
};

std::string RemedyOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
      return "`stasis images ls` lists the images";
    case StatusCode::kCorrupt:
      return "`stasis images verify` lists every damaged place; other images may be whole";
    case StatusCode::kPermissionDenied:
      return "the message names the key; who made it has the file of its identity";
    case StatusCode::kResourceExhausted:
      return "free some room; `stasis images rm` and `stasis images gc` give back what images take";
    default:
      return "";
  }
}

}  // namespace

int FailOfStore(const Status& status, Context& context) {
  return context.reporter.Fail(status, RemedyOf(status));
}

void TellNotes(const Store& store, Context& context) {
  for (const std::string& note : store.notes()) context.reporter.Note(note);
}

std::function<void(uint64_t, uint64_t)> ProgressOf(std::string phase, Context& context) {
  return [phase = std::move(phase), &context](uint64_t done, uint64_t total) {
    context.reporter.Progress(phase, done, total);
  };
}

int ImagesVerb(const Options& options, Context& context) {
  for (const SubVerb& verb : kSubVerbs) {
    if (options.images_verb == verb.name) return verb.run(options, context);
  }
  return context.reporter.Fail(Status(StatusCode::kInternal, "the verb is not built in"));
}

}  // namespace stasis
