#include "lockstep/data/readers/table.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

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

// The columns that the options ask for, as places in the file.
struct Wanted {
  std::vector<std::int64_t> features;
  std::vector<std::int64_t> labels;
};

Wanted columns_in(const TableLayout& layout, const TableOptions& options, const std::string& path) {
  if (options.label && !options.labels.empty())
    throw UsageError("a table with .label, one column, or .labels, several: both were given");
  std::vector<bool> taken(std::size_t(layout.columns), false);
  const auto take = [&](const TableColumn& column) {
    const std::int64_t place = column_of(column, layout, path);
    if (taken[std::size_t(place)])
      throw UsageError("'" + path + "': column " + std::to_string(place + 1) + " asked for twice");
    taken[std::size_t(place)] = true;
    return place;
  };
  Wanted wanted;
  if (options.label) wanted.labels.push_back(take(*options.label));
  for (const TableColumn& label : options.labels) wanted.labels.push_back(take(label));
  for (const TableColumn& column : options.columns) wanted.features.push_back(take(column));
  if (options.columns.empty()) {
    for (std::int64_t place = 0; place < layout.columns; ++place)
      if (!taken[std::size_t(place)]) wanted.features.push_back(place);
  }
  if (wanted.features.empty()) throw UsageError("'" + path + "': no column beside the label's");
  return wanted;
}

}  // namespace

Table read_table(const std::string& path, const TableOptions& options, const TableSlice& slice) {
  RowTarget target{.type = &number_type(options.dtype), .label_type = &number_type(options.label_dtype)};
  const std::unique_ptr<ByteSource> source = open_bytes(path);
  const TableLayout layout = lay_out_table(*source, options.format);
  Wanted wanted = columns_in(layout, options, path);
  Table table{.rows = rows_of(slice, layout.rows), .total_rows = layout.rows};
  if (!layout.names.empty())
    for (const std::int64_t column : wanted.features) table.columns.push_back(layout.names[std::size_t(column)]);
  target.features = std::move(wanted.features);
  target.labels = std::move(wanted.labels);
  if (!could_hold(layout, table.rows)) parse_rows(*source, options.format, layout, table.rows, target);
  table.data = at::empty({table.rows.size(), std::int64_t(target.features.size())}, options.dtype);
  target.data = static_cast<char*>(table.data.mutable_data_ptr());
  if (!target.labels.empty()) {
    std::vector<std::int64_t> shape = {table.rows.size()};
    if (!options.label) shape.push_back(std::int64_t(target.labels.size()));
    table.target = at::empty(shape, options.label_dtype);
    target.target = static_cast<char*>(table.target.mutable_data_ptr());
  }
  parse_rows(*source, options.format, layout, table.rows, target);
  return table;
}

}  // namespace lockstep::data
