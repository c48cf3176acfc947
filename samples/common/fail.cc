#include "fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace sample {

void Fail(int code, const char* format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
  exit(code);
}

}  // namespace sample
