#include "lockstep/data/readers/table_text.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

void check_delimiter(char delimiter) {
  constexpr std::string_view kNone = "\"\r\n+-.0123456789";
  const bool letter = (delimiter >= 'a' && delimiter <= 'z') || (delimiter >= 'A' && delimiter <= 'Z');
  if (!letter && delimiter != '\0' && kNone.find(delimiter) == std::string_view::npos) return;
  throw UsageError("delimiter '" + shown({&delimiter, 1}) + "': one that no number is written with is needed");
}

// Some may lack a name, as the column of row numbers that pandas writes; but a line of nothing is a row of missing
// values.
bool are_names(const std::vector<std::string_view>& fields) {
  bool any = false;
  for (const std::string_view field : fields) {
    double value = 0;
    const NumberFault fault = parse_number(field, value);
    if (fault == NumberFault::none || fault == NumberFault::out_of_range) return false;
    any = any || fault == NumberFault::no_number;
  }
  return any;
}

std::string column_text(const TableLayout& layout, std::size_t column) {
  std::string text = "column " + std::to_string(column + 1);
  return layout.names.empty() ? text : text + " (" + shown(layout.names[column]) + ")";
}

std::string fault_text(NumberFault fault, std::string_view field, const NumberType& type) {
  if (fault == NumberFault::empty) return std::string("is empty, ") + type.expected + " expected";
  const std::string value = "'" + shown(field) + "' ";
  if (fault == NumberFault::out_of_range) return value + "does not fit " + type.name;
  return value + "is not " + type.expected;
}

// What may have been meant.
std::string hint(const CsvRecords& records, const TableFormat& format, const TableLayout& layout,
                 std::string_view field) {
  const std::size_t other = field.find_first_of(",;|\t ", 1);
  if (layout.columns == 1 && other != std::string_view::npos && field[other] != format.delimiter) {
    return "; is '" + shown({&format.delimiter, 1}) + "' the delimiter?";
  }
  if (layout.names.empty() && records.place().offset == layout.marks[0].offset) {
    return "; if the line holds names, say that the header is present";
  }
  return "";
}

// Where the next field of a column goes.
struct Cell {
  const NumberType* type = nullptr;  // none: the column is passed over
  char* place = nullptr;
  std::size_t step = 0;  // from row to row
};

std::vector<Cell> cells_of(const TableLayout& layout, const RowTarget& target) {
  std::vector<Cell> cells(std::size_t(layout.columns));
  const auto assign = [&](const std::vector<std::int64_t>& columns, const NumberType* type, char* first) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      cells[std::size_t(columns[i])] = {type, first == nullptr ? nullptr : first + i * type->bytes,
                                        columns.size() * type->bytes};
  };
  assign(target.labels, target.label_type, target.target);
  std::vector<std::int64_t> features = target.features;
  if (features.empty()) {
    for (std::int64_t column = 0; column < layout.columns; ++column)
      if (cells[std::size_t(column)].type == nullptr) features.push_back(column);
  }
  assign(features, target.type, target.data);
  return cells;
}

void parse_row(CsvRecords& records, const TableFormat& format, const TableLayout& layout, std::vector<Cell>& cells) {
  const std::vector<std::string_view>& fields = records.fields();
  if (std::int64_t(fields.size()) != layout.columns) {
    records.fail(std::to_string(fields.size()) + (fields.size() == 1 ? " column, " : " columns, ") +
                 std::to_string(layout.columns) + " expected");
  }
  for (std::size_t column = 0; column < fields.size(); ++column) {
    Cell& cell = cells[column];
    if (cell.type == nullptr) continue;
    std::int64_t nowhere = 0;
    const NumberFault fault =
        cell.type->parse(fields[column], cell.place == nullptr ? static_cast<void*>(&nowhere) : cell.place);
    if (fault != NumberFault::none) {
      records.fail(column_text(layout, column) + " " + fault_text(fault, fields[column], *cell.type) +
                   hint(records, format, layout, fields[column]));
    }
    if (cell.place != nullptr) cell.place += cell.step;
  }
}

}  // namespace

RowRange rows_of(const TableSlice& slice, std::int64_t rows) {
  if (slice.rank < 0 || slice.rank >= slice.world_size) {
    throw UsageError("rank " + std::to_string(slice.rank) + " of " + std::to_string(slice.world_size) +
                     " asked for a slice of a table");
  }
  const std::int64_t whole = rows / slice.world_size, more = rows % slice.world_size;
  if (slice.remainder == Remainder::keep) {
    const auto first = [&](std::int64_t rank) { return rank * whole + std::min(rank, more); };
    return {first(slice.rank), first(slice.rank + 1)};
  }
  if (slice.remainder == Remainder::drop) return {slice.rank * whole, (slice.rank + 1) * whole};
  const std::int64_t each = whole + (more != 0);
  const std::int64_t first = slice.world_size == 1 ? 0 : slice.rank * (rows - each) / (slice.world_size - 1);
  return {first, first + each};
}

TableLayout lay_out_table(ByteSource& source, const TableFormat& format) {
  check_delimiter(format.delimiter);
  CsvRecords records(source, format.delimiter);
  TableLayout layout;
  if (!records.next()) throw UsageError("'" + source.path() + "': no rows in it");
  layout.columns = std::int64_t(records.fields().size());
  const bool header =
      format.header == TableHeader::present || (format.header == TableHeader::automatic && are_names(records.fields()));
  if (header) {
    layout.names.assign(records.fields().begin(), records.fields().end());
    if (!records.next()) throw UsageError("'" + source.path() + "': no rows in it, only the header");
  }
  do {
    if (layout.rows++ % TableLayout::kMarkEvery == 0) layout.marks.push_back(records.place());
  } while (records.next());
  layout.end = records.place().offset;
  return layout;
}

std::int64_t column_of(const TableColumn& column, const TableLayout& layout, const std::string& file) {
  if (const std::string* name = std::get_if<std::string>(&column)) {
    const auto place = std::ranges::find(layout.names, *name);
    if (layout.names.empty())
      throw UsageError("'" + file + "': column '" + shown(*name) + "' asked for, but no header");
    if (place == layout.names.end()) {
      std::vector<std::string> names;
      for (const std::string& valid : layout.names) names.push_back(shown(valid));
      throw UsageError("'" + file + "': " + base::unknown_name("column", shown(*name), names));
    }
    if (std::find(place + 1, layout.names.end(), *name) != layout.names.end()) {
      throw UsageError("'" + file + "': two columns are called '" + shown(*name) + "'; say which by its number");
    }
    return place - layout.names.begin();
  }
  const std::int64_t number = std::get<std::int64_t>(column);
  const std::int64_t place = number > 0 ? number - 1 : layout.columns + number;
  if (number != 0 && place >= 0 && place < layout.columns) return place;
  throw UsageError("'" + file + "': column " + std::to_string(number) + " asked for, 1 ... " +
                   std::to_string(layout.columns) + " (or -1, the last, ...) are there");
}

void parse_rows(ByteSource& source, const TableFormat& format, const TableLayout& layout, RowRange range,
                const RowTarget& target) {
  if (range.size() == 0) return;
  CsvRecords records(source, format.delimiter, layout.marks[std::size_t(range.first / TableLayout::kMarkEvery)]);
  const auto next = [&] {
    if (!records.next()) records.fail("the file became shorter while it was read");
  };
  std::vector<Cell> cells = cells_of(layout, target);
  for (std::int64_t skipped = range.first % TableLayout::kMarkEvery; skipped > 0; --skipped) next();
  for (std::int64_t row = range.first; row < range.last; ++row) {
    next();
    parse_row(records, format, layout, cells);
  }
}

}  // namespace lockstep::data
