// A program outside the tree: it sees only what is installed.

#include <iostream>

#include "lockstep/base/segment.h"

int main() {
  auto segment = lockstep::base::Segment::create(1);
  auto offset = segment.grow(1);
  auto mapping = segment.map(offset, 1, lockstep::base::Access::read_write);
  std::cout << "segment of " << segment.control().bytes << " bytes, mapped " << mapping.bytes() << "\n";
  return segment.control().bytes > offset ? 0 : 1;
}
