// `stasis images VERB` on images of jobs: lists of the images of their ranks, of use only together.
#ifndef CLI_JOB_IMAGE_VERBS_H_
#define CLI_JOB_IMAGE_VERBS_H_

#include <map>
#include <string>
#include <vector>

#include "cli/images.h"
#include "coordinator/job_record.h"

namespace stasis {

// Which job's image each image of a rank belongs to, by its "TASK/ID". A job whose images cannot be read is
// told as a note.
std::map<std::string, ImageName> ImagesOfJobs(Context& context);
// kFailedPrecondition for an image that is a rank's part of a job's image.
Status RefuseRankImage(const ImageName& name, Context& context);

// The images of the ranks, by rank, of the job's image that is meant: the newest where no id is given.
Result<std::vector<ImageName>> PartsOf(const ImageName& image, const Folders& folders, std::string* id);

int ShowJobImage(const ImageName& image, Context& context);
// The job's image first: the others are then nobody's, should not all be removed.
Status RemoveJobImageWithParts(const ImageName& image, Store& store, const Folders& folders);
int RefuseJobExport(const ImageName& image, Context& context);

}  // namespace stasis

#endif  // CLI_JOB_IMAGE_VERBS_H_
