// Device printf: every conversion against the host's own formatting, order within a thread, and the arrival
// of output at synchronising calls. Standard output is caught in a file.
#include <fcntl.h>
#include <unistd.h>

#include "check.h"

using namespace check;

__global__ void Formats() {
  printf("plain %% %d %5d|%-5d|%05d %+d\n", 42, 42, 42, 42, 42);
  printf("%u %x %X %#x %o %c\n", 3000000000u, 0xbeefu, 0xbeefu, 255, 8, 'z');
  printf("%lld %llu %llx %ld %hd %hhd\n", -1234567890123ll, 12345678901234ull, 0xfeedfacecafell, -77l,
         static_cast<short>(-3), static_cast<char>(-4));
  printf("%f %.3f %10.2f %e %g %G %.0f\n", 3.25, 2.0 / 3, 1e3, 12345.678, 1e-9, 1e20, 2.5);
  printf("%s|%10s|%-10s|%.2s\n", "text", "right", "left", "cut");
  printf("%*d|%.*f\n", 7, 9, 2, 1.23456);
  printf("%a %i\n", 1.0, -5);
  printf("no arguments\n");
}
constexpr const char* kFormats =
    "plain % 42    42|42   |00042 +42\n"
    "3000000000 beef BEEF 0xff 10 z\n"
    "-1234567890123 12345678901234 feedfacecafe -77 -3 -4\n"
    "3.250000 0.667    1000.00 1.234568e+04 1e-09 1E+20 2\n"
    "text|     right|left      |cu\n"
    "      9|1.23\n"
    "0x1p+0 -5\n"
    "no arguments\n";

__global__ void Ordered(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) printf("block %d round %d\n", blockIdx.x, i);
  }
}
__global__ void Returns(int* out) {
  out[0] = printf("%d %d\n", 1, 2);
  out[1] = printf("none\n");
}

class Capture {
 public:
  Capture() {
    std::fflush(stdout);
    file_ = std::tmpfile();
    saved_ = dup(1);
    dup2(fileno(file_), 1);
  }
  std::string Stop() {
    std::fflush(stdout);
    dup2(saved_, 1);
    close(saved_);
    std::string text(static_cast<size_t>(lseek(fileno(file_), 0, SEEK_END)), 0);
    ssize_t count = pread(fileno(file_), text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    std::fclose(file_);
    return text;
  }

 private:
  std::FILE* file_;
  int saved_;
};

int main() {
  {
    Capture capture;
    Formats<<<1, 1>>>();
    CUDA_OK(cudaDeviceSynchronize());
    std::string text = capture.Stop();
    Report(text == kFormats, "formats", "got:\n" + text + "want:\n" + kFormats);
  }
  {
    Capture capture;
    Ordered<<<3, 64>>>(4);
    CUDA_OK(cudaStreamSynchronize(nullptr));
    std::string text = capture.Stop();
    for (int block = 0; block < 3; ++block) {
      size_t at = 0;
      for (int round = 0; round < 4; ++round) {
        std::string line = "block " + std::to_string(block) + " round " + std::to_string(round) + "\n";
        size_t found = text.find(line, at);
        Report(found != std::string::npos, "order", line);
        if (found != std::string::npos) at = found;
      }
    }
    Same("lines", static_cast<long>(std::count(text.begin(), text.end(), '\n')), 12l);
  }
  {
    Device<int> out(2);
    Capture capture;
    Returns<<<1, 1>>>(out.get());
    CUDA_OK(cudaDeviceSynchronize());
    capture.Stop();
    Same("returned count", out.Read()[0], 2);
    Same("returned zero", out.Read()[1], 0);
  }
  return Finish("printf");
}
