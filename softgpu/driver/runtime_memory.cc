// What the C++ runtime that is linked into the library keeps for emergencies goes with the library: a process
// that closes the driver and opens it again must not grow.
namespace __gnu_cxx {
void __freeres();  // of libstdc++ (libsupc++/eh_alloc.cc), made for leak checkers
}

namespace {

// Among the last destructors: nothing throws after it.
__attribute__((destructor(101))) void FreeRuntimeMemory() { __gnu_cxx::__freeres(); }

}  // namespace
