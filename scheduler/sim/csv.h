// Named columns of one CSV text, row by row. Fields are plain: no quotes, no commas inside.
#ifndef SCHEDULER_SIM_CSV_H_
#define SCHEDULER_SIM_CSV_H_

#include <cstddef>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis::scheduler {

class CsvTable {
 public:
  // `text` must outlive the table; `name` is for messages.
  CsvTable(std::istream& text, std::string name);

  // kInvalidArgument names the column that is missing and those that are there.
  Status ReadHeader(const std::vector<std::string>& wanted);
  // The next row that is not empty; false at the end. kInvalidArgument when it has more or fewer fields than
  // the header.
  Result<bool> Next();

  // Of the current row. Only columns that ReadHeader() was asked for.
  const std::string& Text(const std::string& column) const { return fields_[columns_.at(column)]; }
  Result<double> Number(const std::string& column) const;
  // Seconds since 1970 of "YYYY-MM-DD HH:MM:SS".
  Result<double> Moment(const std::string& column) const;

  // kInvalidArgument with the file's name and the row's line in front.
  Status Wrong(const std::string& what) const;

 private:
  bool ReadLine();

  std::istream& text_;
  const std::string name_;
  std::string line_;
  size_t number_ = 0, width_ = 0;
  std::map<std::string, size_t> columns_;
  std::vector<std::string> fields_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_SIM_CSV_H_
