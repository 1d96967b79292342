#include "lockstep/data/readers/table.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

const NumberType& number_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return NumberType::float32;
    case at::kDouble:
      return NumberType::float64;
    case at::kLong:
      return NumberType::int64;
    default:
      throw UsageError(std::string("a table of ") + c10::toString(dtype) + " asked for: Float, Double or Long");
  }
}

// A row of n numbers is at least 2 n - 1 characters and a line end. Where there cannot be room for the rows, one of
// them is wrong, and it is found before memory is taken for all.
bool could_hold(const TableLayout& layout, RowRange rows) {
  return std::uint64_t(layout.columns) <= (layout.end + 1) / 2 / std::uint64_t(std::max<std::int64_t>(rows.size(), 1));
}

}  // namespace

Table read_table(const std::string& path, const TableOptions& options, const TableSlice& slice) {
  RowTarget target{.type = &number_type(options.dtype), .label_type = &number_type(options.label_dtype)};
  const std::unique_ptr<ByteSource> source = open_bytes(path);
  const TableLayout layout = lay_out_table(*source, options.format);
  if (options.label) target.label = column_of(*options.label, layout, path);
  const std::int64_t features = layout.columns - (options.label ? 1 : 0);
  if (features == 0) throw UsageError("'" + path + "': no column beside the label's");
  Table table{.columns = layout.names, .rows = rows_of(slice, layout.rows), .total_rows = layout.rows};
  if (options.label && !table.columns.empty()) table.columns.erase(table.columns.begin() + target.label);
  if (!could_hold(layout, table.rows)) parse_rows(*source, options.format, layout, table.rows, target);
  table.data = at::empty({table.rows.size(), features}, options.dtype);
  target.data = static_cast<char*>(table.data.mutable_data_ptr());
  if (options.label) {
    table.target = at::empty({table.rows.size()}, options.label_dtype);
    target.labels = static_cast<char*>(table.target.mutable_data_ptr());
  }
  parse_rows(*source, options.format, layout, table.rows, target);
  return table;
}

}  // namespace lockstep::data
