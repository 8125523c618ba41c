// What this machine is: the processor's name and features, its caches, memory and the cores this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace belay::cpu {

struct CpuInfo {
  std::string name;      // "AMD EPYC 9654"
  std::string arch;      // "x86_64"
  std::string features;  // "avx2 fma avx512f": only what the operating system lets programs use
  uint64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // data caches that one core sees; 0: not known
  uint64_t memory_bytes = 0;                          // physical, or the control group's limit if that is less
  uint64_t cores = 1;                                 // this process may run on, by affinity and CPU quota
};

// Reads it anew: affinity and limits may change.
CpuInfo read_cpu_info();

}  // namespace belay::cpu
