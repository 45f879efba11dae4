// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <vector>

/// softhca_lifetime_confine COMMAND [ARGUMENTS...]: runs a command without the system calls that
/// container run times withhold by default (moby: profiles/seccomp/default.json, those bound to a
/// capability), and without what other profiles withhold too: ptrace, process_vm_*, io_uring.
namespace {

/// clone3: ENOSYS, so that the C library falls back to clone.
constexpr long kRefused[] = {SYS_userfaultfd,
                             SYS_io_uring_setup,
                             SYS_io_uring_enter,
                             SYS_io_uring_register,
                             SYS_ptrace,
                             SYS_process_vm_readv,
                             SYS_process_vm_writev,
                             SYS_process_madvise,
                             SYS_pidfd_getfd,
                             SYS_kcmp,
                             SYS_perf_event_open,
                             SYS_bpf,
                             SYS_mbind,
                             SYS_set_mempolicy,
                             SYS_get_mempolicy,
                             SYS_mount,
                             SYS_umount2,
                             SYS_unshare,
                             SYS_setns,
                             SYS_add_key,
                             SYS_keyctl,
                             SYS_request_key,
                             SYS_open_by_handle_at,
                             SYS_move_pages,
                             SYS_migrate_pages};

std::vector<sock_filter> filter() {
  std::vector<sock_filter> code;
  code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  const auto refuse = [&code](long number, unsigned error) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  };
  for (const long number : kRefused) refuse(number, EPERM);
  refuse(SYS_clone3, ENOSYS);
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: softhca_lifetime_confine COMMAND [ARGUMENTS...]\n");
    return 2;
  }
  std::vector<sock_filter> code = filter();
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("seccomp");
    return 2;
  }
  ::execvp(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}
