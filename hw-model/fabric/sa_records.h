// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/fabric/sa_query.h"
#include "hw-model/fabric/subnet.h"
#include "hw-model/fabric/subnet_manager.h"

namespace softhca::fabric {

/// Records that show attributes of the subnet's nodes as they are at this moment (IBA 15.2.5).
RecordList find_nodes(Subnet& subnet, const SaQuery& query);
RecordList find_port_infos(Subnet& subnet, const SaQuery& query);
RecordList find_switch_infos(Subnet& subnet, const SaQuery& query);
RecordList find_links(Subnet& subnet, const SaQuery& query);
RecordList find_managers(Subnet& subnet, const SubnetManager& manager, const SaQuery& query);
RecordList find_linear_tables(Subnet& subnet, const SaQuery& query);
RecordList find_multicast_tables(Subnet& subnet, const SaQuery& query);
RecordList find_guid_infos(Subnet& subnet, const SaQuery& query);
RecordList find_pkey_tables(Subnet& subnet, const SaQuery& query);

}  // namespace softhca::fabric
