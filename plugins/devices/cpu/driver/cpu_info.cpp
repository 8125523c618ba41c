#include "cpu_info.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace belay::cpu {
namespace {

#if defined(__x86_64__) || defined(__i386__)
struct Regs {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Regs cpuid(unsigned leaf, unsigned sub = 0) {
  Regs r;
  __get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d);
  return r;
}

uint64_t xcr0() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

std::string brand() {
  if (unsigned(__get_cpuid_max(0x80000000u, nullptr)) < 0x80000004u) return {};
  char text[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    const Regs r = cpuid(0x80000002u + i);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string name(text);
  const auto first = name.find_first_not_of(' ');
  const auto last = name.find_last_not_of(' ');
  return first == std::string::npos ? std::string() : name.substr(first, last - first + 1);
}

std::string features() {
  const Regs one = cpuid(1), seven = cpuid(7), seven1 = cpuid(7, 1);
  // A feature with wide registers counts only if the operating system saves them.
  const bool saves = one.c >> 27 & 1;
  const uint64_t saved = saves ? xcr0() : 0;
  const bool ymm = (saved & 6) == 6, zmm = (saved & 0xe6) == 0xe6, tiles = (saved & 0x60000) == 0x60000;
  std::string text;
  const auto add = [&](bool has, const char* name) {
    if (!has) return;
    if (!text.empty()) text += ' ';
    text += name;
  };
  add(one.d >> 26 & 1, "sse2");
  add(one.c >> 19 & 1, "sse4.1");
  add(one.c >> 20 & 1, "sse4.2");
  add(ymm && one.c >> 28 & 1, "avx");
  add(ymm && one.c >> 29 & 1, "f16c");
  add(ymm && one.c >> 12 & 1, "fma");
  add(ymm && seven.b >> 5 & 1, "avx2");
  add(ymm && seven1.a >> 4 & 1, "avx_vnni");
  add(zmm && seven.b >> 16 & 1, "avx512f");
  add(zmm && seven.b >> 17 & 1, "avx512dq");
  add(zmm && seven.b >> 30 & 1, "avx512bw");
  add(zmm && seven.b >> 31 & 1, "avx512vl");
  add(zmm && seven.c >> 11 & 1, "avx512_vnni");
  add(zmm && seven1.a >> 5 & 1, "avx512_bf16");
  add(zmm && seven.d >> 23 & 1, "avx512_fp16");
  add(tiles && seven.d >> 24 & 1, "amx_tile");
  add(tiles && seven.d >> 25 & 1, "amx_int8");
  add(tiles && seven.d >> 22 & 1, "amx_bf16");
  return text;
}
#else
std::string brand() { return {}; }
std::string features() { return {}; }
#endif

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// /sys/devices/system/cpu/cpu0/cache/index*: level, type, size ("1024K").
void read_caches(CpuInfo& info) {
  for (int i = 0; i < 8; ++i) {
    const std::string dir = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    const std::string level = first_line((dir + "level").c_str()), type = first_line((dir + "type").c_str());
    if (level.empty() || type == "Instruction") continue;
    const std::string size = first_line((dir + "size").c_str());
    char* unit = nullptr;
    uint64_t bytes = std::strtoull(size.c_str(), &unit, 10);
    if (unit && *unit == 'K') bytes <<= 10;
    if (unit && *unit == 'M') bytes <<= 20;
    if (level == "1") info.l1_bytes = bytes;
    if (level == "2") info.l2_bytes = bytes;
    if (level == "3") info.l3_bytes = bytes;
  }
}

// The path of this process below the unified control group hierarchy: "0::/user.slice".
std::string cgroup_dir() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);)
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + (line.size() > 4 ? line.substr(3) : std::string());
  return "/sys/fs/cgroup";
}

uint64_t read_memory(const std::string& cgroup) {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page > 0 ? uint64_t(pages) * uint64_t(page) : uint64_t{1} << 30;
  for (const std::string& file : {cgroup + "/memory.max", std::string("/sys/fs/cgroup/memory/memory.limit_in_bytes")}) {
    const std::string line = first_line(file.c_str());
    if (!line.empty() && line != "max")
      if (const uint64_t limit = std::strtoull(line.c_str(), nullptr, 10); limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

uint64_t read_cores(const std::string& cgroup) {
  uint64_t cores = uint64_t(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = uint64_t(std::max(1, CPU_COUNT(&set)));
  std::istringstream quota(first_line((cgroup + "/cpu.max").c_str()));  // "200000 100000" or "max 100000"
  uint64_t allowed = 0, period = 0;
  if (quota >> allowed >> period && period > 0)
    cores = std::min(cores, std::max<uint64_t>(1, (allowed + period - 1) / period));
  return cores;
}

}  // namespace

CpuInfo read_cpu_info() {
  CpuInfo info;
  utsname machine{};
  info.arch = uname(&machine) == 0 ? machine.machine : "unknown";
  info.name = brand();
  if (info.name.empty()) info.name = info.arch + " processor";
  info.features = features();
  read_caches(info);
  const std::string cgroup = cgroup_dir();
  info.memory_bytes = read_memory(cgroup);
  info.cores = read_cores(cgroup);
  return info;
}

}  // namespace belay::cpu
