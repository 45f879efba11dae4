// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A hostile guest's program: writes garbage where a driver writes. Runs in guests, as root.
//   scribble bar BDF FROM TO SEED COUNT   stores to random places of BAR0 bytes FROM to TO
//   scribble word BDF OFFSET VALUE        one store of four bytes to BAR0, big-endian
//   scribble read BDF OFFSET              prints a word of BAR0
//   scribble queue DEVICE SEED COUNT      garbage in the send queue and doorbell record of COUNT
//                                         connected QPs in turn, through libmlx5's mapped queues
#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <stdexcept>
#include <string>

namespace {

constexpr std::size_t kBarSize = std::size_t{32} << 20;

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

/// BAR0 of a PCI function.
class Bar {
 public:
  explicit Bar(const std::string& bdf) {
    const int fd = ::open(("/sys/bus/pci/devices/" + bdf + "/resource0").c_str(), O_RDWR | O_SYNC);
    require(fd >= 0, "resource0 cannot be opened");
    size_ = static_cast<std::size_t>(std::max<off_t>(0, ::lseek(fd, 0, SEEK_END)));
    require(size_ != 0 && size_ <= kBarSize, "BAR0 has an unexpected size");
    void* base = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    require(base != MAP_FAILED, "resource0 cannot be mapped");
    base_ = static_cast<std::uint8_t*>(base);
  }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;
  ~Bar() { ::munmap(base_, size_); }
  std::size_t size() const { return size_; }
  volatile std::uint8_t* at(std::size_t offset, std::size_t bytes) const {
    require(offset % bytes == 0 && offset < size_ && bytes <= size_ - offset, "beyond BAR0");
    return base_ + offset;
  }

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t size_ = 0;
};

void scribble_bar(const Bar& bar, std::size_t from, std::size_t to, unsigned seed, long count) {
  std::mt19937_64 random(seed);
  to = std::min(to, bar.size());
  require(from % 8 == 0 && from + 8 <= to, "an empty range");
  for (long i = 0; i < count; ++i) {
    const std::size_t offset = from + random() % ((to - from) / 8) * 8;
    const std::uint64_t value = random();
    if (i % 2 == 0) {
      *reinterpret_cast<volatile std::uint64_t*>(bar.at(offset, 8)) = value;
    } else {
      *reinterpret_cast<volatile std::uint32_t*>(bar.at(offset, 4)) =
          static_cast<std::uint32_t>(value);
    }
  }
}

/// A queue pair that is connected to itself.
struct Loop {
  explicit Loop(ibv_context* context_in) : context(context_in) {
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    require(pd != nullptr && cq != nullptr, "no PD or CQ");
    ibv_qp_init_attr init{};
    init.send_cq = cq;
    init.recv_cq = cq;
    init.cap = {64, 64, 2, 2, 0};
    init.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(pd, &init);
    require(qp != nullptr, "no QP");
    ibv_port_attr port{};
    require(ibv_query_port(context, 1, &port) == 0, "no port");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.dlid = port.lid;
    attr.ah_attr.port_num = 1;
    require(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;
    attr.retry_cnt = 1;
    attr.max_rd_atomic = 1;
    require(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "RTS");
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    ibv_destroy_qp(qp);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
  }

  ibv_context* context;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

/// Hands a random number of basic blocks of garbage to the device. Every other queue gets headers
/// that pass for this QP's, so that what follows them is looked at, too.
void scribble_queue(Loop& loop, std::mt19937_64& random, bool plausible) {
  mlx5dv_qp direct{};
  mlx5dv_obj object{};
  object.qp = {loop.qp, &direct};
  require(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0, "mlx5dv_init_obj");
  auto* queue = static_cast<std::uint8_t*>(direct.sq.buf);
  const std::size_t bytes = std::size_t{direct.sq.wqe_cnt} * direct.sq.stride;
  for (std::size_t i = 0; i < bytes; ++i) queue[i] = static_cast<std::uint8_t>(random());
  const auto blocks = static_cast<std::uint32_t>(1 + random() % direct.sq.wqe_cnt);
  for (std::uint32_t block = 0; plausible && block < blocks; ++block) {
    auto* control = queue + std::size_t{block} * direct.sq.stride;
    const std::uint32_t opcode = htobe32(block << 8 | static_cast<std::uint32_t>(random() % 0x30));
    const std::uint32_t who =
        htobe32(loop.qp->qp_num << 8 | static_cast<std::uint32_t>(random() % 8));
    std::memcpy(control, &opcode, 4);
    std::memcpy(control + 4, &who, 4);
  }
  direct.dbrec[1] = htobe32(blocks);
  __sync_synchronize();
  // The doorbell itself names the queue, or the garbage would stay unseen.
  const std::uint64_t who = htobe64(std::uint64_t{loop.qp->qp_num} << 8 | 1);
  *static_cast<volatile std::uint64_t*>(direct.bf.reg) = who;
}

/// True if the QP leaves RTS within a second: garbage must not pass for work.
bool fails(Loop& loop) {
  for (int i = 0; i < 100; ++i) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    require(ibv_query_qp(loop.qp, &attr, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
    if (attr.qp_state != IBV_QPS_RTS) return true;
    const timespec pause{0, 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

void scribble_queues(const std::string& name, unsigned seed, int count) {
  int devices = 0;
  ibv_device** list = ibv_get_device_list(&devices);
  ibv_context* context = nullptr;
  for (int i = 0; i < devices; ++i) {
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  require(context != nullptr, "no such device");
  std::mt19937_64 random(seed);
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    Loop loop(context);
    scribble_queue(loop, random, i % 2 != 0);
    if (fails(loop)) ++failed;
  }
  ibv_close_device(context);
  std::printf("%d of %d queue pairs failed\n", failed, count);
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const auto number = [argv](int index) { return std::strtoul(argv[index], nullptr, 0); };
  if (mode == "bar" && argc == 7) {
    scribble_bar(Bar(argv[2]), number(3), number(4), static_cast<unsigned>(number(5)),
                 static_cast<long>(number(6)));
  } else if (mode == "word" && argc == 5) {
    const Bar bar(argv[2]);
    *reinterpret_cast<volatile std::uint32_t*>(bar.at(number(3), 4)) =
        htobe32(static_cast<std::uint32_t>(number(4)));
  } else if (mode == "read" && argc == 4) {
    const Bar bar(argv[2]);
    std::printf("%#x\n", be32toh(*reinterpret_cast<volatile std::uint32_t*>(bar.at(number(3), 4))));
  } else if (mode == "queue" && argc == 5) {
    scribble_queues(argv[2], static_cast<unsigned>(number(3)), static_cast<int>(number(4)));
  } else {
    std::fprintf(stderr, "usage: see the head of scribble.cpp\n");
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scribble: %s\n", error.what());
    return 1;
  }
}
