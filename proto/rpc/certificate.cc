#include "proto/rpc/certificate.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace stasis {
namespace {

constexpr size_t kMaxKnown = 1000;
constexpr size_t kMaxName = 200;

constexpr struct {
  std::string_view unit;
  Role role;
} kRoles[] = {{"stasis-reader", Role::kReader},
              {"stasis-operator", Role::kOperator},
              {"stasis-scheduler", Role::kScheduler},
              {"stasis-agent", Role::kAgent}};

std::vector<std::string> Entries(const X509_NAME* name, int kind) {
  std::vector<std::string> texts;
  for (int at = X509_NAME_get_index_by_NID(name, kind, -1); at >= 0;
       at = X509_NAME_get_index_by_NID(name, kind, at)) {
    unsigned char* text = nullptr;
    int size = ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
    if (size >= 0) texts.emplace_back(reinterpret_cast<char*>(text), static_cast<size_t>(size));
    OPENSSL_free(text);
  }
  return texts;
}

std::optional<Role> RoleOf(const std::vector<std::string>& units) {
  std::optional<Role> found;
  for (const std::string& unit : units) {
    for (const auto& entry : kRoles) {
      if (unit != entry.unit) continue;
      if (found) return std::nullopt;
      found = entry.role;
    }
  }
  return found;
}

bool IsPlain(const std::string& text) {
  return !text.empty() && text.size() <= kMaxName && std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
  });
}

Status Refused(const char* why) {
  return Status(StatusCode::kPermissionDenied, std::string("the client's certificate ") + why);
}

}  // namespace

Result<Certificate> ReadClientCertificate(const std::string& pem) {
  std::unique_ptr<BIO, decltype(&BIO_free)> memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                   BIO_free);
  std::unique_ptr<X509, decltype(&X509_free)> parsed(
      PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr), X509_free);
  if (parsed == nullptr) return Refused("cannot be read");
  const X509_NAME* subject = X509_get_subject_name(parsed.get());
  std::vector<std::string> names = Entries(subject, NID_commonName);
  if (names.size() != 1 || !IsPlain(names[0])) return Refused("has no common name, or not a plain one");
  std::optional<Role> role = RoleOf(Entries(subject, NID_organizationalUnitName));
  if (!role) {
    return Refused(
        "has no role: exactly one organizational unit (OU) of stasis-reader, stasis-operator, "
        "stasis-scheduler, stasis-agent is expected");
  }
  std::tm until{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(parsed.get()), &until) != 1) return Refused("has no end");
  Certificate certificate;
  certificate.actor = {"cn " + names[0], *role};
  certificate.not_after = timegm(&until);
  return certificate;
}

Result<Actor> Certificates::ActorOf(const std::string& pem, int64_t now_seconds) {
  std::lock_guard lock(mutex_);
  auto found = known_.find(pem);
  if (found == known_.end()) {
    ASSIGN_OR_RETURN(Certificate certificate, ReadClientCertificate(pem));
    if (known_.size() >= kMaxKnown) known_.clear();
    found = known_.emplace(pem, std::move(certificate)).first;
  }
  if (found->second.not_after < now_seconds) return Refused("has expired");
  return found->second.actor;
}

}  // namespace stasis
