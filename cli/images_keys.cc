// `stasis images keygen` and `stasis images encrypt-to`: the keys of images that are encrypted at rest.
#include <fmt/format.h>

#include "cli/images.h"
#include "dedup/keys.h"

namespace stasis {
namespace {

Json KeysJson(const std::vector<PublicKey>& keys) {
  Json list = Json::array();
  for (const PublicKey& key : keys) list.push_back({{"id", KeyId(key)}, {"public_key", PublicKeyText(key)}});
  return list;
}

int ReportRecipients(const std::vector<PublicKey>& keys, Context& context) {
  std::string text =
      keys.empty() ? "images are not encrypted"
                   : fmt::format("images that are written from now on are encrypted to key {}", KeyIds(keys));
  return context.reporter.Done({{"encrypt_to", KeysJson(keys)}}, text);
}

}  // namespace

int ImagesKeygenVerb(const Options& options, Context& context) {
  const Identity identity = Identity::Generate();
  Status status = identity.Write(options.file);
  if (!status.ok()) return context.reporter.Fail(status, "name a file that does not exist yet");
  const std::string key = PublicKeyText(identity.public_key());
  return context.reporter.Done(
      {{"file", options.file}, {"id", KeyId(identity.public_key())}, {"public_key", key}},
      fmt::format(
          "{} is the identity of key {}: keep it apart from the images, and a copy of it. On each node, "
          "`stasis images encrypt-to KEY` with\n{}",
          options.file, KeyId(identity.public_key()), key));
}

int ImagesEncryptToVerb(const Options& options, Context& context) {
  if (options.images.empty() && !options.force) {
    Result<std::vector<PublicKey>> keys = ReadRecipients(context.folders.state);
    if (!keys.ok())
      return context.reporter.Fail(keys.status(), "`stasis images encrypt-to KEY` writes it anew");
    return ReportRecipients(*keys, context);
  }
  std::vector<PublicKey> keys;
  for (const std::string& text : options.images) {
    Result<PublicKey> key = ParsePublicKey(text);
    if (!key.ok()) return context.reporter.Fail(key.status());
    keys.push_back(*key);
  }
  Status status = WriteRecipients(context.folders.state, keys);
  if (!status.ok()) return context.reporter.Fail(status);
  return ReportRecipients(keys, context);
}

}  // namespace stasis
