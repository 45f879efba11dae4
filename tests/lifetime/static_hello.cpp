// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// A program that no preload can reach: it is linked statically.
int main() {
  return 0;
}
