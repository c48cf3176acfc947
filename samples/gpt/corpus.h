// The text to be learnt, as numbers.
#pragma once

#include <string>
#include <vector>

#include "../common/random.h"
#include "config.h"

namespace gpt {

struct Corpus {
  int vocabulary = 0;       // distinct bytes of the text
  std::vector<int> tokens;  // the text, each byte replaced by its rank among those
};

// Ends the program with a clear line when the file cannot be read or has fewer than `least` bytes.
Corpus LoadCorpus(const std::string& path, int least);

struct Batch {
  std::vector<int> tokens;   // batch x context
  std::vector<int> targets;  // the token that follows each
};

// Pieces of the text from random places.
Batch DrawBatch(const Corpus& corpus, const Config& config, sample::Random* random);

}  // namespace gpt
