#pragma once

#include <string>

#include "model/checkpoint.h"
#include "model/inventory.h"

namespace millrace::app {

// What `millrace inspect` prints about a checkpoint directory, or about a config alone.
struct InspectSubject {
  std::string path;
  model::Inventory inventory;             // of the files, or of the catalogue
  const model::CheckpointReport* report;  // null when there is only a config
};

// Tables for people: one fact a line, each line with the words one would search for.
std::string InspectText(const InspectSubject& subject);

// One JSON object on one line.
std::string InspectJson(const InspectSubject& subject);

}  // namespace millrace::app
