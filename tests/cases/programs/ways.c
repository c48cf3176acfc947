// Finds the driver's functions in one of several ways, and uses them.
//
// usage: ways WAY GO    says "ready", waits until GO exists, and says what its memory holds
//   linked        as functions that it is linked with
//   FILE          dlopen of FILE, and dlsym
//   addresses     the first call of the process is cuGetProcAddress_v2; nothing else is looked up
//   itself        cuGetProcAddress of cuGetProcAddress, three times over
//   namespace     dlmopen: a copy of its own
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

typedef int (*Function)();
typedef int (*GetProcAddress)(const char* name, void** address, int version, uint64_t flags, void* status);

enum { kVersion = 12000, kBytes = 1 << 20 };

static void* library;
static GetProcAddress get;

static void Fail(const char* what) {
  printf("%s\n", what);
  exit(3);
}

static Function Find(const char* name, const char* versioned) {
  void* found = NULL;
  if (get == NULL) {
    found = dlsym(library, versioned);
  } else if (get(name, &found, kVersion, 0, NULL) != 0) {
    found = NULL;
  }
  if (found == NULL) Fail(versioned);
  return (Function)found;
}

static void Open(const char* way) {
  int addresses = strcmp(way, "addresses") == 0, itself = strcmp(way, "itself") == 0;
  if (strcmp(way, "linked") == 0) {
    library = RTLD_DEFAULT;
    return;
  }
  if (strcmp(way, "namespace") == 0) {
    library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
  } else {
    library = dlopen(addresses || itself ? "libcuda.so.1" : way, RTLD_NOW);
  }
  if (library == NULL) Fail(dlerror());
  if (!addresses && !itself) return;
  get = (GetProcAddress)dlsym(library, "cuGetProcAddress_v2");
  for (int i = 0; itself && i < 3; ++i) {
    void* found = NULL;
    if (get("cuGetProcAddress", &found, kVersion, 0, NULL) != 0 || found == NULL) Fail("cuGetProcAddress");
    get = (GetProcAddress)found;
  }
}

static void Wait(const char* path) {
  char folder[4096];
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = 0;
  int watch = inotify_init1(IN_CLOEXEC);
  if (inotify_add_watch(watch, folder, IN_CREATE | IN_MOVED_TO) < 0) Fail("watch");
  while (access(path, F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) Fail("read");
  }
  close(watch);
}

#define CHECK(call) \
  if ((call) != 0) Fail(#call)

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Open(argv[1]);
  int device = 0;
  void* context = NULL;
  uint64_t memory = 0;
  unsigned char* bytes = malloc(kBytes);
  CHECK(Find("cuInit", "cuInit")(0));
  CHECK(Find("cuDeviceGet", "cuDeviceGet")(&device, 0));
  CHECK(Find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain")(&context, device));
  CHECK(Find("cuCtxSetCurrent", "cuCtxSetCurrent")(context));
  CHECK(Find("cuMemAlloc", "cuMemAlloc_v2")(&memory, (size_t)kBytes));
  CHECK(Find("cuMemsetD8", "cuMemsetD8_v2")(memory, 77, (size_t)kBytes));
  CHECK(Find("cuCtxSynchronize", "cuCtxSynchronize")());
  printf("ready\n");
  fflush(stdout);
  Wait(argv[2]);
  CHECK(Find("cuMemcpyDtoH", "cuMemcpyDtoH_v2")(bytes, memory, (size_t)kBytes));
  for (int i = 0; i < kBytes; ++i)
    if (bytes[i] != 77) Fail("the memory has changed");
  CHECK(Find("cuMemFree", "cuMemFree_v2")(memory));
  printf("end\n");
  return 0;
}
