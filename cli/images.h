// `stasis images VERB`: each does all of its work, reports, and returns the exit code.
#ifndef CLI_IMAGES_H_
#define CLI_IMAGES_H_

#include <functional>
#include <memory>
#include <string>

#include "cli/verbs.h"
#include "coordinator/node/image_names.h"

namespace stasis {

int ImagesLsVerb(const Options& options, Context& context);
int ImagesShowVerb(const Options& options, Context& context);
int ImagesVerifyVerb(const Options& options, Context& context);
int ImagesRmVerb(const Options& options, Context& context);
int ImagesGcVerb(const Options& options, Context& context);
// Carried out by an agent, which it finds itself.
int ImagesCopyVerb(const Options& options, Context& context);
int ImagesExportVerb(const Options& options, Context& context);
int ImagesImportVerb(const Options& options, Context& context);
int ImagesKeygenVerb(const Options& options, Context& context);
int ImagesEncryptToVerb(const Options& options, Context& context);

// Fails with the remedy that belongs to the status of something asked of the store.
int FailOfStore(const Status& status, Context& context);
// Notes of the store (an index that was rebuilt), told to the user.
void TellNotes(const Store& store, Context& context);
// Tells bytes done and in all to the reporter.
std::function<void(uint64_t, uint64_t)> ProgressOf(std::string phase, Context& context);

}  // namespace stasis

#endif  // CLI_IMAGES_H_
