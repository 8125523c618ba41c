// A pool that does what any bytes say: nothing that the checker outside sees is wrong, and all is one block at the end.
#include <pool_checker.hpp>

#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (const std::string wrong = belay::testing::drive_pool(data, size); !wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
