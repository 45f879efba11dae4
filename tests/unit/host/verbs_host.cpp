// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/unit/host/verbs_host.h"

#include <fcntl.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace softhca::shim::test {
namespace {

constexpr std::size_t kBufferSize = 1 << 20;
constexpr std::uint64_t kCoreTarget = 0x1000000;
constexpr std::uint64_t kDriverTarget = 0x2000000;

}  // namespace

VerbsHost::VerbsHost(const shim::Offers& offers) {
  ::signal(SIGPIPE, SIG_IGN);  // As the daemon does: applications close their event files.
  auto fake = std::make_unique<FakeDevice>();
  fake_ = fake.get();
  auto hca = Hca::bring_up(std::move(fake), loop_);
  hca_ = std::move(*hca);
  device_ = std::make_unique<IbDevice>(*hca_, offers);
  device_->refresh_port();
  hca_->start_events(*device_, [] {});
  memory_.reset(::memfd_create("test-process", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* const place = ::mmap(nullptr, kBufferSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  buffer_ = reinterpret_cast<std::uint64_t>(place);
  [[maybe_unused]] const int sized = ::ftruncate(memory_.get(), 1LL << 47);
  ::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  ::mmap(place, kBufferSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_.get(),
         kBufferOffset);
  pieces_ = {{buffer_, kBufferSize, kBufferOffset}};
  context_ = new_context();
  open(*context_);
  uar_ = make_uar(*context_);
}

VerbsHost::~VerbsHost() {
  context_.reset();
  ::munmap(reinterpret_cast<void*>(buffer_), kBufferSize);
  device_.reset();
  hca_.reset();
}

std::unique_ptr<Context> VerbsHost::new_context() {
  return std::make_unique<Context>(
      *device_,
      ClientMemory(runtime::UniqueFd(::open("/proc/self/mem", O_RDWR | O_CLOEXEC)), ::getpid()));
}

void VerbsHost::open(Context& context) {
  ib_uverbs_get_context core{};
  mlx5_ib_alloc_ucontext_req_v2 driver{};
  driver.total_num_bfregs = 16;
  driver.num_low_latency_bfregs = 4;
  driver.max_cqe_version = 1;
  driver.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
  const Done done = write<ib_uverbs_get_context, ib_uverbs_get_context_resp>(
      context, IB_USER_VERBS_CMD_GET_CONTEXT, core, &driver, sizeof(mlx5_ib_alloc_ucontext_resp));
  ASSERT_EQ(done.error, 0);
}

VerbsHost::Done VerbsHost::write(Context& context, std::uint32_t command,
                                 std::span<const std::byte> core, std::size_t core_out,
                                 std::span<const std::byte> driver, std::size_t driver_out,
                                 Sharing sharing, int core_fd) {
  Call call;
  call.core = core;
  call.core_out = {kCoreTarget, core_out};
  call.udata = driver;
  call.udata_out = {kDriverTarget, driver_out};
  call.sharing = sharing;
  call.mkey_state = mkey_state_;
  if (sharing == Sharing::shared || sharing == Sharing::partly) {
    const auto& map = context.memory(call).map();
    const int error = call.shared.open(device_->shared_files(), memory_.get(), map,
                                       {pieces_.begin(), pieces_.end()});
    if (error != 0) {
      Done refused;
      refused.error = error;
      return refused;
    }
  }
  call.core_fd = core_fd;
  Done done;
  done.error = run_write_command(context, call, command);
  std::span<const std::byte> body = call.reply.body();
  for (std::uint32_t i = 0; i < call.reply.count(); ++i) {
    if (call.reply.status() == ReplyStatus::share) {
      ShareRange range;
      std::memcpy(&range, body.data(), sizeof(range));
      body = body.subspan(sizeof(range));
      done.share.push_back(range);
      continue;
    }
    ReplyItem item;
    std::memcpy(&item, body.data(), sizeof(item));
    body = body.subspan(sizeof(item));
    const std::span<const std::byte> data = body.first(item.length);
    body = body.subspan((item.length + 7) / 8 * 8);
    if (item.kind != ItemKind::bytes) continue;
    (item.target == kCoreTarget ? done.core : done.driver).assign(data.begin(), data.end());
  }
  for (const runtime::UniqueFd& fd : call.reply.fds()) done.fds.emplace_back(::dup(fd.get()));
  return done;
}

int VerbsHost::destroy(Context& context, std::uint16_t object, std::uint16_t method,
                       std::uint32_t handle, std::uint16_t response, std::vector<std::byte>* out) {
  const Method* const row = find_method(object, method);
  if (row == nullptr) return EPROTONOSUPPORT;
  Call call;
  IoctlAttribute attribute;
  attribute.id = row->attributes.front().id;
  attribute.data = handle;
  call.attributes.push_back(attribute);
  if (response != 0) {
    IoctlAttribute room;
    room.id = row->attributes.back().id;
    room.length = response;
    room.position = 1;
    call.attributes.push_back(room);
  }
  const int error = row->handler(context, call);
  if (out != nullptr && error == 0) {
    const std::span<const std::byte> body = call.reply.body().subspan(sizeof(ReplyItem));
    out->assign(body.begin(), body.end());
  }
  return error;
}

std::uint32_t VerbsHost::make_pd(Context& context) {
  const Done done = write<ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp>(
      context, IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, static_cast<char*>(nullptr), 8);
  EXPECT_EQ(done.error, 0);
  return done.as<ib_uverbs_alloc_pd_resp>().pd_handle;
}

std::uint32_t VerbsHost::make_uar(Context& context) {
  const Method* const row = find_method(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
  Call call;
  for (const AttrSpec& spec : row->attributes) {
    IoctlAttribute attribute;
    attribute.id = spec.id;
    attribute.length = spec.length;
    attribute.data = spec.id == MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE ? 1 : 0;
    call.attributes.push_back(attribute);
  }
  EXPECT_EQ(row->handler(context, call), 0);
  return context.uars.first().index;
}

VerbsHost::Done VerbsHost::make_cq(Context& context, std::uint32_t cqe, int channel_fd,
                                   std::uint64_t user_handle) {
  ib_uverbs_create_cq core{};
  core.cqe = cqe;
  core.comp_channel = channel_fd;
  core.user_handle = user_handle;
  mlx5_ib_create_cq driver{};
  driver.buf_addr = buffer_;
  driver.db_addr = buffer_ + 0x80000;
  driver.cqe_size = 64;
  driver.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  driver.uar_page_index = static_cast<std::uint16_t>(uar_);
  return write(context, IB_USER_VERBS_CMD_CREATE_CQ, std::as_bytes(std::span(&core, 1)),
               sizeof(ib_uverbs_create_cq_resp), std::as_bytes(std::span(&driver, 1)),
               sizeof(mlx5_ib_create_cq_resp), Sharing::shared, channel_fd);
}

VerbsHost::Done VerbsHost::make_qp(Context& context, std::uint32_t pd, std::uint32_t cq) {
  ib_uverbs_create_qp core{};
  core.pd_handle = pd;
  core.send_cq_handle = cq;
  core.recv_cq_handle = cq;
  core.max_send_wr = 16;
  core.max_recv_wr = 16;
  core.max_send_sge = 1;
  core.max_recv_sge = 1;
  core.qp_type = IB_UVERBS_QPT_RC;
  mlx5_ib_create_qp driver{};
  driver.buf_addr = buffer_ + 0x10000;
  driver.db_addr = buffer_ + 0x80040;
  driver.sq_wqe_count = 16;
  driver.rq_wqe_count = 16;
  driver.rq_wqe_shift = 4;
  driver.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
  driver.bfreg_index = uar_;
  return write<ib_uverbs_create_qp, ib_uverbs_create_qp_resp>(
      context, IB_USER_VERBS_CMD_CREATE_QP, core, &driver, sizeof(mlx5_ib_create_qp_resp));
}

VerbsHost::Done VerbsHost::make_mr(Context& context, std::uint32_t pd, std::uint64_t start,
                                   std::uint64_t length, std::uint32_t access) {
  ib_uverbs_reg_mr core{};
  core.start = start;
  core.hca_va = start;
  core.length = length;
  core.pd_handle = pd;
  core.access_flags = access;
  return write_sharing<ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp>(context, IB_USER_VERBS_CMD_REG_MR,
                                                                core);
}

}  // namespace softhca::shim::test
