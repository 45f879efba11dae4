// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/syndromes.h"

namespace softhca {

std::string_view syndrome_text(Syndrome syndrome) {
  switch (syndrome) {
    case Syndrome::none:
      return "no failure";
    case Syndrome::unknown_opcode:
      return "the opcode is not known";
    case Syndrome::not_supported:
      return "the command is not built into this device";
    case Syndrome::hca_disabled:
      return "ENABLE_HCA has not been executed";
    case Syndrome::hca_not_initialized:
      return "INIT_HCA has not been executed";
    case Syndrome::hca_already_initialized:
      return "the HCA is initialized";
    case Syndrome::input_too_short:
      return "the input is shorter than the command needs";
    case Syndrome::output_too_short:
      return "the output area is shorter than the command needs";
    case Syndrome::bad_op_mod:
      return "op_mod names no variant of the command";
    case Syndrome::other_function:
      return "function_id names another function";
    case Syndrome::bad_user_context:
      return "uid names no user context";
    case Syndrome::device_failed:
      return "the device has failed, see the health buffer";
    case Syndrome::bad_issi:
      return "the ISSI is not supported";
    case Syndrome::boot_pages_missing:
      return "boot pages have not been given";
    case Syndrome::init_pages_missing:
      return "init pages have not been given";
    case Syndrome::bad_page_address:
      return "a page address is not page aligned";
    case Syndrome::page_given_twice:
      return "the device has this page already";
    case Syndrome::bad_page_count:
      return "the number of pages does not fit the lengths of the command";
    case Syndrome::bad_cap_type:
      return "no such group of capabilities";
    case Syndrome::cap_above_maximum:
      return "a capability is above its maximum";
    case Syndrome::unknown_register:
      return "no such register";
    case Syndrome::register_read_only:
      return "the register cannot be written";
    case Syndrome::bad_register_value:
      return "a field of the register has a value that is not allowed";
    case Syndrome::bad_port:
      return "no such port";
    case Syndrome::bad_vport:
      return "no such vport";
    case Syndrome::bad_gid_index:
      return "GID index out of range";
    case Syndrome::bad_pkey_index:
      return "P_Key index out of range";
    case Syndrome::no_mad_agent:
      return "nobody answers management datagrams on this port";
    case Syndrome::bad_profile:
      return "no such teardown profile";
    case Syndrome::pages_withheld:
      return "the driver refused pages that the device needs";
    case Syndrome::field_not_selectable:
      return "the selected field cannot be changed";
    case Syndrome::too_many_pages:
      return "more pages than the device can hold";
    case Syndrome::bad_m_key:
      return "the datagram has not the M_Key of the port";
    case Syndrome::out_of_uars:
      return "no UAR is left";
    case Syndrome::out_of_pds:
      return "no protection domain is left";
    case Syndrome::out_of_xrcds:
      return "no XRC domain is left";
    case Syndrome::out_of_transport_domains:
      return "no transport domain is left";
    case Syndrome::out_of_user_contexts:
      return "no user context is left";
    case Syndrome::out_of_counters:
      return "no counter set is left";
    case Syndrome::no_such_uar:
      return "no such UAR";
    case Syndrome::no_such_pd:
      return "no such protection domain";
    case Syndrome::no_such_xrcd:
      return "no such XRC domain";
    case Syndrome::no_such_transport_domain:
      return "no such transport domain";
    case Syndrome::no_such_user_context:
      return "no such user context";
    case Syndrome::no_such_counter:
      return "no such counter set";
    case Syndrome::uar_in_use:
      return "the UAR is in use";
    case Syndrome::pd_in_use:
      return "the protection domain is in use";
    case Syndrome::xrcd_in_use:
      return "the XRC domain is in use";
    case Syndrome::user_context_in_use:
      return "the user context is in use";
    case Syndrome::out_of_multicast_groups:
      return "no room for another multicast member";
    case Syndrome::not_attached:
      return "the queue pair is not a member of the group";
    case Syndrome::not_multicast:
      return "the GID is not a multicast GID";
    case Syndrome::bad_queue_size:
      return "the size of the queue is not allowed";
    case Syndrome::bad_page_size:
      return "the page size or page offset is not allowed";
    case Syndrome::too_few_pages:
      return "the list of pages is too short for the queue";
    case Syndrome::bad_page_alignment:
      return "a page address is not aligned to the page size";
    case Syndrome::bad_doorbell_record:
      return "the doorbell record is not 8 byte aligned";
    case Syndrome::umem_not_supported:
      return "user memory objects are not built into this device";
    case Syndrome::out_of_eqs:
      return "no event queue is left";
    case Syndrome::no_such_eq:
      return "no such event queue";
    case Syndrome::eq_in_use:
      return "the event queue is in use";
    case Syndrome::bad_vector:
      return "no such MSI-X vector";
    case Syndrome::out_of_cqs:
      return "no completion queue is left";
    case Syndrome::no_such_cq:
      return "no such completion queue";
    case Syndrome::cq_in_use:
      return "the completion queue is in use";
    case Syndrome::bad_cqe_size:
      return "the CQE size is not allowed";
    case Syndrome::cq_too_small_for_contents:
      return "the new completion queue does not hold the present CQEs";
    case Syndrome::bad_modify_field:
      return "a selected field cannot be changed";
    case Syndrome::out_of_mkeys:
      return "no memory key is left";
    case Syndrome::no_such_mkey:
      return "no such memory key";
    case Syndrome::mkey_in_use:
      return "the memory key is in use";
    case Syndrome::bad_access_mode:
      return "the access mode is not built into this device";
    case Syndrome::bad_mkey_page_size:
      return "the page size of the memory key is not allowed";
    case Syndrome::translation_too_small:
      return "the list of pages does not cover the length of the memory key";
    case Syndrome::address_range_wraps:
      return "address plus length passes the end of the address space";
    case Syndrome::bad_mkey_qpn:
      return "the queue pair of the memory key is not allowed";
    case Syndrome::out_of_qps:
      return "no queue pair is left";
    case Syndrome::no_such_qp:
      return "no such queue pair";
    case Syndrome::qp_in_use:
      return "the queue pair is in use";
    case Syndrome::bad_service_type:
      return "the service type is not built into this device";
    case Syndrome::bad_receive_queue_type:
      return "the receive queue type is not allowed";
    case Syndrome::bad_qp_transition:
      return "the transition is not allowed in the state of the queue pair";
    case Syndrome::bad_mtu:
      return "the path MTU is not allowed";
    case Syndrome::bad_rd_atomic:
      return "too many outstanding READs or atomics";
    case Syndrome::bad_path_migration:
      return "path migration is not built into this device";
    case Syndrome::special_qp_taken:
      return "QP0 or QP1 exists already";
    case Syndrome::bad_optional_parameter:
      return "an optional parameter is not allowed in this transition";
    case Syndrome::bad_remote_qpn:
      return "the remote queue pair number is not allowed";
    case Syndrome::bad_max_message:
      return "the longest message is not allowed";
    case Syndrome::bad_ack_timeout:
      return "the ACK timeout is not allowed";
    case Syndrome::out_of_srqs:
      return "no shared receive queue is left";
    case Syndrome::no_such_srq:
      return "no such shared receive queue";
    case Syndrome::srq_in_use:
      return "the shared receive queue is in use";
    case Syndrome::bad_wq_type:
      return "the work queue type is not allowed";
    case Syndrome::bad_wqe_stride:
      return "the stride of the queue is not allowed";
    case Syndrome::bad_limit:
      return "the limit is above the size of the queue";
  }
  return "unknown syndrome";
}

}  // namespace softhca
