#include "softgpu/nccl/proxy.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "softgpu/nccl/wire.h"

namespace softgpu::nccl {

namespace {

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

void Link::Wake() {
  if (proxy != nullptr) {
    proxy->Kick();
  } else {
    peer_bell->Ring();
  }
}

Proxy::Proxy(std::vector<Link>* links, Bell* bell, Report report) : bell_(bell), report_(std::move(report)) {
  for (size_t rank = 0; rank < links->size(); rank++) {
    Link& link = (*links)[rank];
    if (!link.remote()) continue;
    Peer& peer = peers_.emplace_back(Peer{static_cast<int>(rank), &link});
    std::fill(std::begin(peer.data_open), std::end(peer.data_open), link.tcp());
    if (link.tcp()) link.proxy = this;
  }
}

Proxy::~Proxy() { Stop(false); }

bool Proxy::Start() {
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return wake_.valid() && thread_.Start("nccl-proxy", [this] { Loop(); });
}

void Proxy::Kick() {
  const uint64_t one = 1;
  if (asleep_.exchange(false)) static_cast<void>(!write(wake_.get(), &one, sizeof one));
}

void Proxy::SendFailed() {
  for (const Peer& peer : peers_) send(peer.link->control.get(), &kFailed, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Proxy::Stop(bool good_order) {
  stopping_.store(good_order ? Stopping::kGoodOrder : Stopping::kAtOnce);
  Kick();
  thread_.Join(stasis::Deadline::Never());
}

void Proxy::Loop() {
  for (;;) {
    // In this order: whoever changes a ring after Move() has looked at it finds us asleep.
    asleep_.store(true);
    const bool moved = Move();
    const Stopping stopping = stopping_.load();
    if (stopping == Stopping::kAtOnce || (stopping == Stopping::kGoodOrder && Flushed())) break;
    if (!moved) Sleep();
    asleep_.store(false);
  }
  if (stopping_.load() != Stopping::kGoodOrder) return;
  for (const Peer& peer : peers_) send(peer.link->control.get(), &kGoodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Proxy::Move() {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (peer.control_open) moved |= HearControl(&peer);
    for (int channel = 0; channel < kChannels; channel++) {
      if (peer.data_open[channel]) moved |= SendData(&peer, channel);
      if (peer.data_open[channel]) moved |= ReceiveData(&peer, channel);
    }
  }
  if (moved) bell_->Ring();
  return moved;
}

bool Proxy::HearControl(Peer* peer) {
  char byte = 0;
  const ssize_t heard = recv(peer->link->control.get(), &byte, 1, MSG_DONTWAIT);
  if (heard < 0 && WouldBlock()) return false;
  if (heard <= 0) {
    peer->control_open = false;
    if (!peer->said_goodbye) report_(peer->rank, Event::kDied);
  } else if (byte == kGoodbye) {
    peer->said_goodbye = true;
  } else {
    report_(peer->rank, Event::kFailed);
  }
  return true;
}

bool Proxy::SendData(Peer* peer, int channel) {
  const std::byte* from;
  const size_t size = peer->link->out[channel].ReadableSpan(&from);
  if (size == 0) return false;
  const ssize_t sent = send(peer->link->data[channel].get(), from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && WouldBlock()) return false;
  if (sent < 0) {
    // The control connection tells why.
    peer->data_open[channel] = false;
    return false;
  }
  peer->link->out[channel].Consume(static_cast<size_t>(sent));
  return true;
}

bool Proxy::ReceiveData(Peer* peer, int channel) {
  std::byte* to;
  const size_t room = peer->link->in[channel].WritableSpan(&to);
  if (room == 0) return false;
  const ssize_t received = recv(peer->link->data[channel].get(), to, room, MSG_DONTWAIT);
  if (received < 0 && WouldBlock()) return false;
  if (received <= 0) {
    peer->data_open[channel] = false;
    return false;
  }
  peer->link->in[channel].Produce(static_cast<size_t>(received));
  return true;
}

bool Proxy::Flushed() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    for (int channel = 0; channel < kChannels; channel++) {
      if (peer.control_open && peer.data_open[channel] && peer.link->out[channel].Readable() != 0)
        return false;
    }
    return true;
  });
}

void Proxy::Sleep() {
  polls_.assign(1, {wake_.get(), POLLIN, 0});
  for (const Peer& peer : peers_) {
    if (peer.control_open) polls_.push_back({peer.link->control.get(), POLLIN, 0});
    for (int channel = 0; channel < kChannels; channel++) {
      if (!peer.data_open[channel]) continue;
      const bool room = peer.link->in[channel].Writable() != 0;
      const bool waiting = peer.link->out[channel].Readable() != 0;
      const int events = (room ? POLLIN : 0) | (waiting ? POLLOUT : 0);
      if (events != 0) polls_.push_back({peer.link->data[channel].get(), static_cast<short>(events), 0});
    }
  }
  poll(polls_.data(), polls_.size(), -1);
  uint64_t count;
  if (polls_[0].revents != 0) static_cast<void>(!read(wake_.get(), &count, sizeof count));
}

}  // namespace softgpu::nccl
