// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Baseline: memcpy between two shared mappings, the limit of any transfer by one thread of this
// machine.
//   memcpy_mappings SIZE [SECONDS]      prints one line: GB/s (10^9 bytes)
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void* shared_mapping(const char* name, std::size_t size) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return nullptr;
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  return base == MAP_FAILED ? nullptr : base;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 0;
  const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 0.3;
  if (size == 0 || size > (1ULL << 30)) {
    std::fprintf(stderr, "usage: memcpy_mappings SIZE(1..2^30) [SECONDS]\n");
    return 2;
  }
  void* from = shared_mapping("from", size);
  void* to = shared_mapping("to", size);
  if (from == nullptr || to == nullptr) {
    std::perror("memcpy_mappings");
    return 1;
  }
  std::memset(from, 1, size);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::size_t copies = 0;
  double elapsed = 0;
  while (elapsed < seconds) {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(to, from, size);
      asm volatile("" ::: "memory");
    }
    copies += 16;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::printf("%.3f\n", static_cast<double>(copies) * static_cast<double>(size) / elapsed / 1e9);
  return 0;
}
