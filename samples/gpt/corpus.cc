#include "corpus.h"

#include <stdio.h>

#include "../common/fail.h"

namespace gpt {
namespace {

std::string ReadFile(const std::string& path) {
  FILE* file = fopen(path.c_str(), "rb");
  if (file == nullptr)
    sample::Fail(sample::kExitFailure, "cannot open %s; choose another with --text", path.c_str());
  std::string text;
  char bytes[65536];
  size_t size;
  while ((size = fread(bytes, 1, sizeof(bytes), file)) > 0) text.append(bytes, size);
  const bool failed = ferror(file) != 0;
  fclose(file);
  if (failed) sample::Fail(sample::kExitFailure, "cannot read %s", path.c_str());
  return text;
}

}  // namespace

Corpus LoadCorpus(const std::string& path, int least) {
  const std::string text = ReadFile(path);
  if (text.size() < static_cast<size_t>(least) || text.size() > INT32_MAX) {
    sample::Fail(sample::kExitFailure, "%s has %zu bytes, at least %d are needed", path.c_str(), text.size(),
                 least);
  }
  int rank[256] = {};
  for (const unsigned char byte : text) rank[byte] = 1;
  Corpus corpus;
  for (int& entry : rank) entry = entry != 0 ? corpus.vocabulary++ : -1;
  for (const unsigned char byte : text) corpus.tokens.push_back(rank[byte]);
  return corpus;
}

Batch DrawBatch(const Corpus& corpus, const Config& config, sample::Random* random) {
  Batch batch;
  const uint32_t starts = static_cast<uint32_t>(corpus.tokens.size()) - config.context;
  for (int i = 0; i < config.batch; ++i) {
    const auto from = corpus.tokens.begin() + random->Below(starts);
    batch.tokens.insert(batch.tokens.end(), from, from + config.context);
    batch.targets.insert(batch.targets.end(), from + 1, from + 1 + config.context);
  }
  return batch;
}

}  // namespace gpt
