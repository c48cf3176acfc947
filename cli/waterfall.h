// An operation and its steps, for people and as documents.
#ifndef CLI_WATERFALL_H_
#define CLI_WATERFALL_H_

#include <string>

#include "coordinator/node/layout.h"
#include "stasis/v1/operation.pb.h"

namespace stasis {

Json DescribeOperation(const v1::Operation& operation);
Json DescribeSpans(const v1::Operation& operation);

// "succeeded", "TIMEOUT: two threads ...", "dump 40 %".
std::string OutcomeText(const v1::Operation& operation);
// What is known of it in a few lines, and the waterfall.
std::string OperationText(const v1::Operation& operation);

// One line for each span: children below their parent, in the order of their starts, each with a bar of
// `width` characters for the whole of the operation's time. "" where there are none.
std::string WaterfallText(const v1::Operation& operation, int width);

}  // namespace stasis

#endif  // CLI_WATERFALL_H_
