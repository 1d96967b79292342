#pragma once

// A table of numbers as comma-separated text, without libtorch: where its rows lie, and their numbers in memory.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/data/readers/byte_source.h"
#include "lockstep/data/readers/csv.h"
#include "lockstep/data/readers/numbers.h"
#include "lockstep/data/samplers/deal.h"

namespace lockstep::data {

enum class TableHeader {
  automatic,  ///< the first line holds names when none of its fields is a number and not all are empty
  present,
  absent,
};

struct TableFormat {
  char delimiter = ',';  ///< not one that numbers and quotes are made of
  TableHeader header = TableHeader::automatic;
};

/// A column by its name, or by its number: 1 is the first, -1 the last.
using TableColumn = std::variant<std::string, std::int64_t>;

/// What a rank reads of a table of N rows: rows that follow each other.
///
/// pad: every rank reads ceil(N / world_size), as ranks that train together need it. The slices begin at equal
/// distances, so where N does not divide, neighbours share rows. drop: every rank reads floor(N / world_size), and the
/// last rows are left out. keep: every row belongs to exactly one rank, as torch.tensor_split divides: the first
/// N % world_size ranks read one more. For statistics that the ranks add up; evaluate() wants the whole table on every
/// rank, and divides it itself.
struct TableSlice {
  int rank = 0;
  int world_size = 1;
  Remainder remainder = Remainder::pad;
};

struct RowRange {
  std::int64_t first = 0;
  std::int64_t last = 0;  ///< behind the last one

  std::int64_t size() const { return last - first; }
};

/// UsageError unless 0 <= rank < world_size.
RowRange rows_of(const TableSlice& slice, std::int64_t rows);

/// What one pass over a file, without looking at the numbers, says about it.
struct TableLayout {
  std::vector<std::string> names;  ///< of the columns; empty without a header
  std::int64_t columns = 0;
  std::int64_t rows = 0;
  std::uint64_t end = 0;        ///< offset at which the rows end
  std::vector<CsvPlace> marks;  ///< places of the rows 0, kMarkEvery, 2 kMarkEvery, ...

  static constexpr std::int64_t kMarkEvery = 1024;
};

/// UsageError naming the file: no row in it, a delimiter that cannot be one, and as CsvRecords.
TableLayout lay_out_table(ByteSource& source, const TableFormat& format);

/// The place of a column, from 0. UsageError naming `file` when there is no such column, or two of that name.
std::int64_t column_of(const TableColumn& column, const TableLayout& layout, const std::string& file);

/// Where rows go. Columns count from 0; what is in those that go nowhere is not looked at. Null places: the rows are
/// only checked.
struct RowTarget {
  const NumberType* type = nullptr;
  std::vector<std::int64_t> features = {};  ///< columns that go to `data`, in this order; empty: all but the labels
  const NumberType* label_type = nullptr;
  std::vector<std::int64_t> labels = {};  ///< columns that go to `target`, in this order; none in `features`
  char* data = nullptr;                   ///< row by row
  char* target = nullptr;                 ///< row by row
};

/// Parses the rows `range` of a table. The bytes before them are only searched for line ends, and only from the nearest
/// mark on; those behind are not read. UsageError "file:line: ..." for the first field that is no number or row that
/// has another number of columns; also when the file became shorter since.
void parse_rows(ByteSource& source, const TableFormat& format, const TableLayout& layout, RowRange range,
                const RowTarget& target);

}  // namespace lockstep::data
