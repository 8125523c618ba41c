// A library of any bytes: its headers, tables and note are read within their bounds.
#include "core/discovery/plugin_file.h"

#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char name[] = "/tmp/belay_fuzz_XXXXXX";
  const int fd = mkstemp(name);
  if (fd < 0 || write(fd, data, size) != ssize_t(size)) std::abort();
  static_cast<void>(belay::core::check_plugin_file(name, true));
  close(fd);
  unlink(name);
  return 0;
}
