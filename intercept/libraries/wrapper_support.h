// What the generated wrappers of the libraries are made of.
#ifndef INTERCEPT_LIBRARIES_WRAPPER_SUPPORT_H_
#define INTERCEPT_LIBRARIES_WRAPPER_SUPPORT_H_

#include "intercept/libraries/library_call.h"
#include "intercept/libraries/library_gate.h"
#include "intercept/libraries/real_functions.h"
#include "intercept/taint.h"

#define STASIS_LIBRARY_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // INTERCEPT_LIBRARIES_WRAPPER_SUPPORT_H_
