// Any bytes are a table or a UsageError, and the slices of several ranks are the rows that one rank reads. The first
// byte of the input chooses delimiter, header and type.

#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/data/readers/table_text.h"
#include "tests/fuzz/accepted.h"

namespace {

using namespace lockstep::data;

// The same for each rank: a table that one rank reads is one that all can read.
bool read(ByteSource& source, const TableFormat& format, const NumberType& type, int world_size,
          std::vector<char>& rows) {
  return lockstep::testing::accepted([&] {
    const TableLayout layout = lay_out_table(source, format);
    if (std::uint64_t(layout.rows) > layout.end || layout.columns < 1) std::abort();
    rows.clear();
    for (int rank = 0; rank < world_size; ++rank) {
      const RowRange range = rows_of({rank, world_size, Remainder::keep}, layout.rows);
      parse_rows(source, format, layout, range, {.type = &type});  // before memory is taken, as read_table does
      const std::size_t before = rows.size();
      rows.resize(before + std::size_t(range.size() * layout.columns) * type.bytes);
      parse_rows(source, format, layout, range, {.type = &type, .data = rows.data() + before});
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  const TableFormat format{.delimiter = ",;\t "[choice & 3], .header = TableHeader((choice >> 2 & 3) % 3)};
  const NumberType* const types[] = {&NumberType::float32, &NumberType::float64, &NumberType::int64};
  const NumberType& type = *types[(choice >> 4) % 3];
  const std::unique_ptr<ByteSource> source = memory_bytes({data + 1, size - 1}, "fuzz");
  std::vector<char> whole, slices;
  const bool accepted = read(*source, format, type, 1, whole);
  if (read(*source, format, type, 3, slices) != accepted || (accepted && whole != slices)) std::abort();
  return 0;
}
