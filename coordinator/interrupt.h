#ifndef COORDINATOR_INTERRUPT_H_
#define COORDINATOR_INTERRUPT_H_

namespace stasis {

// By which an operation is given up. Polls readable when something has come.
class Interrupt {
 public:
  virtual ~Interrupt() = default;
  virtual int fd() const = 0;
  // Takes what has come; true when that asks to give up.
  virtual bool Take() = 0;
};

}  // namespace stasis

#endif  // COORDINATOR_INTERRUPT_H_
