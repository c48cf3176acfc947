// Texture fetches and surface accesses by 64-bit handle.
#include "softgpu/ptx/exec/lower.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {

using ptx::Operand;
using stasis::Status;

Status FunctionLowering::ParseSampleWords(const Instruction& i, SampleWords* words) const {
  static constexpr const char* kGeometries[] = {"1d", "2d", "3d", "a1d", "a2d"};
  for (const std::string& word : i.words) {
    bool known = ptx::TypeFromName(word) != Type::kNone || word == "base" || word == "level" || word == "b";
    for (uint8_t g = 0; g < 5; ++g) {
      if (word != kGeometries[g]) continue;
      words->geometry = g;
      known = true;
    }
    if (word == "v2" || word == "v4") {
      words->vector = static_cast<unsigned>(word[1] - '0');
      known = true;
    }
    if (word == "trap" || word == "clamp" || word == "zero") {
      words->mode = static_cast<uint8_t>(word == "trap"    ? SurfaceMode::kTrap
                                         : word == "clamp" ? SurfaceMode::kClamp
                                                           : SurfaceMode::kZero);
      known = true;
    }
    if (word == "ca" || word == "cg" || word == "cs" || word == "cv" || word == "wb" || word == "wt")
      known = true;
    if (!known) return Unknown(i);
  }
  return words->geometry == 0xff ? Unknown(i) : Status();
}

// Rows of the handle and the coordinates; the layer of an array is an integer whatever the others are.
Status FunctionLowering::SampleOperands(const Instruction& i, const Operand& where, uint8_t geometry,
                                        Type coordinate, std::vector<Ref>* rows) {
  if (where.kind != Kind::kTexture || where.elements.size() != 2) return Unknown(i);
  ASSIGN_OR_RETURN(Ref handle, Source(where.elements[0], Type::kU64));
  rows->push_back(handle);
  const Operand& c = where.elements[1];
  std::vector<Operand> coordinates = c.kind == Kind::kVector ? c.elements : std::vector<Operand>{c};
  unsigned count = kCoordinates[geometry];
  if (coordinates.size() < count) return Bad(i, "too few coordinates");
  bool layered =
      geometry == static_cast<uint8_t>(Geometry::kA1d) || geometry == static_cast<uint8_t>(Geometry::kA2d);
  for (unsigned n = 0; n < count; ++n) {
    ASSIGN_OR_RETURN(Ref row, Source(coordinates[n], layered && n == 0 ? Type::kU32 : coordinate));
    rows->push_back(row);
  }
  return Status();
}

Status FunctionLowering::LowerTexture(const Instruction& i) {
  SampleWords words;
  RETURN_IF_ERROR(ParseSampleWords(i, &words));
  // Textures have one level here: which one is asked for makes no difference.
  bool shaped = i.operands.size() == (i.Has("level") ? 3u : 2u) && i.types.size() == 2 &&
                i.operands[0].kind == Kind::kVector && i.operands[0].elements.size() == 4 &&
                words.vector == 4;
  if (!shaped) return Unknown(i);
  Type result = i.types[0], coordinate = i.types[1];
  bool integers = result == Type::kS32 || result == Type::kU32;
  if ((!integers && result != Type::kF32) || (coordinate != Type::kS32 && coordinate != Type::kF32))
    return Unknown(i);
  std::vector<Ref> rows;
  RETURN_IF_ERROR(SampleOperands(i, i.operands[1], words.geometry, coordinate, &rows));
  std::vector<VReg> dests;
  for (const Operand& o : i.operands[0].elements) {
    ASSIGN_OR_RETURN(VReg v, Dest(o, 4));
    dests.push_back(v);
  }
  Draft& d = Emit(&OpTexture);
  d.inst.x = words.geometry;
  d.inst.y = coordinate == Type::kF32;
  d.inst.z = integers;
  unsigned at = 0;
  for (Ref row : rows) Use(d, Field::kRefs, row, at++);
  for (VReg v : dests) Def(d, Field::kRefs, v, at++);
  return Status();
}

Status FunctionLowering::LowerSurface(const Instruction& i, bool store) {
  SampleWords words;
  RETURN_IF_ERROR(ParseSampleWords(i, &words));
  if (!i.Has("b") || i.operands.size() != 2 || i.types.size() != 1) return Unknown(i);
  unsigned bytes = ptx::SizeOf(i.types[0]), lane_bytes = bytes < 2 ? 2 : bytes;
  if (bytes > 8) return Unknown(i);
  const Operand& values = i.operands[store ? 1 : 0];
  std::vector<Operand> elements =
      values.kind == Kind::kVector ? values.elements : std::vector<Operand>{values};
  if (elements.size() != words.vector) return Bad(i, "wrong number of registers");
  std::vector<Ref> rows;
  RETURN_IF_ERROR(SampleOperands(i, i.operands[store ? 0 : 1], words.geometry, Type::kS32, &rows));
  std::vector<VReg> dests;
  for (const Operand& o : elements) {
    if (store) {
      ASSIGN_OR_RETURN(Ref row, SourceBytes(o, lane_bytes));
      rows.push_back(row);
    } else {
      ASSIGN_OR_RETURN(VReg v, Dest(o, lane_bytes));
      dests.push_back(v);
    }
  }
  Draft& d = Emit(store ? &OpSurfaceStore : &OpSurfaceLoad);
  d.inst.x = words.geometry;
  d.inst.y = static_cast<uint8_t>(bytes);
  d.inst.z = words.mode;
  d.inst.imm = static_cast<int64_t>(elements.size());
  unsigned at = 0;
  for (Ref row : rows) Use(d, Field::kRefs, row, at++);
  for (VReg v : dests) Def(d, Field::kRefs, v, at++);
  for (size_t e = 0; e < dests.size(); ++e) RETURN_IF_ERROR(FinishDest(elements[e], dests[e], false));
  return Status();
}

}  // namespace softgpu::exec
