// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/fabric/multicast_groups.h"
#include "hw-model/fabric/sa_query.h"
#include "hw-model/fabric/subnet.h"

namespace softhca::fabric {

/// PathRecords that fit a query (IBA 15.2.5.16), by GID or LID of either end, or with a multicast
/// group as destination.
RecordList find_paths(Subnet& subnet, const MulticastGroups& groups, const SaQuery& query);

}  // namespace softhca::fabric
