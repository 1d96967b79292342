#pragma once

// Feature tables: comma-separated numbers as tensors, a slice of the rows for each rank.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/readers/table_text.h"

namespace lockstep::data {

struct TableOptions {
  TableFormat format = {};
  std::vector<TableColumn> columns = {};   ///< the features, in this order; empty: all columns but the labels'
  at::ScalarType dtype = at::kFloat;       ///< of the features: at::kFloat, at::kDouble or at::kLong
  std::optional<TableColumn> label = {};   ///< the column that becomes the target [rows]
  std::vector<TableColumn> labels = {};    ///< or several, which become the target [rows, labels], in this order
  at::ScalarType label_dtype = at::kLong;  ///< class numbers; at::kFloat for a regression
};

struct Table {
  at::Tensor data;                   ///< [rows, columns]
  at::Tensor target;                 ///< [rows] of `label`, [rows, labels] of `labels`; undefined without
  std::vector<std::string> columns;  ///< names of the columns of `data`; empty without a header
  RowRange rows;                     ///< which rows of the file these are, from 0, the header not counted
  std::int64_t total_rows = 0;       ///< of the file
};

/// The rows of the file `path` (.gz: unpacked) that are `slice`: by default all. Columns that nobody asks for may hold
/// what they want. Each rank passes over the file once to find where its rows lie, but parses its own rows only,
/// straight into the tensors: 256 KiB of text are in memory at a time. Numbers have the values of Python's float(),
/// rounded to dtype; what lines and fields may look like is said at CsvRecords. There are no missing values: write nan.
///
/// UsageError, "file:line: column 3 (width) 'abc' is not a number": a field that is no number, or does not fit dtype; a
/// row with another number of columns; misplaced quotes. Without a line: the file cannot be read or has no rows, a
/// column does not exist or is asked for twice, none is left for the features, both `label` and `labels`, a dtype other
/// than the three.
Table read_table(const std::string& path, const TableOptions& options = {}, const TableSlice& slice = {});

}  // namespace lockstep::data
