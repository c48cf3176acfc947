#!/usr/bin/env python3
"""Writes the reference of the interfaces, rpc-reference.md, from the comments in proto/.

usage: scripts/gen/rpc_reference.py --descriptors FILE --out FILE

FILE is what `protoc --include_source_info --descriptor_set_out` writes. Fails where a file, a service, a call, a field or a
value has no text; the value 0 of an enumeration may be without.
"""
import argparse
import pathlib
import sys

from google.protobuf import descriptor_pb2

Field = descriptor_pb2.FieldDescriptorProto
# Numbers of fields in descriptor.proto, of which paths to comments are made.
MESSAGES, ENUMS, SERVICES, SYNTAX = 4, 5, 6, 12
FIELDS, NESTED, VALUES, METHODS = 2, 3, 2, 2
NAMES = {value: name[len("TYPE_"):].lower() for name, value in Field.Type.items()}


class MissingText(Exception):
    """An interface that nobody would understand."""


class Comments:
    """The comments of one file, by path."""

    def __init__(self, file):
        self.texts = {}
        for place in file.source_code_info.location:
            text = " ".join((place.leading_comments + place.trailing_comments).split())
            self.texts.setdefault(tuple(place.path), text)

    def of(self, path, what):
        text = self.texts.get(path, "")
        if not text:
            raise MissingText(f"{what}: no text")
        return text


def cell(text):
    return text.replace("|", "\\|").replace("<", "\\<")


def link(name, own_package="stasis.v1"):
    short = name.lstrip(".").removeprefix(own_package + ".")
    return f"[{short}](#{short.lower().replace('.', '')})"


def type_of(field):
    name = link(field.type_name) if field.type_name else NAMES[field.type]
    if field.label == Field.LABEL_REPEATED:
        return "repeated " + name
    return ("optional " if field.proto3_optional else "") + name


def message_lines(message, path, prefix, comments):
    name = prefix + message.name
    lines = [f"### {name}", ""]
    text = comments.texts.get(path)
    if text:
        lines += [text.replace("<", "\\<"), ""]
    if message.field:
        lines += ["| field | type | |", "|---|---|---|"]
    for at, field in enumerate(message.field):
        what = comments.of(path + (FIELDS, at), f"{name}.{field.name}")
        lines.append(f"| `{field.name}` = {field.number} | {type_of(field)} | {cell(what)} |")
    lines += ["Nothing.", ""] if not message.field else [""]
    for at, nested in enumerate(message.nested_type):
        lines += message_lines(nested, path + (NESTED, at), name + ".", comments)
    return lines


def enum_lines(enum, path, comments):
    lines = [f"### {enum.name}", ""]
    if comments.texts.get(path):
        lines += [comments.texts[path], ""]
    lines += ["| value | |", "|---|---|"]
    for at, value in enumerate(enum.value):
        place = path + (VALUES, at)
        text = comments.texts.get(place, "") if value.number == 0 else comments.of(place, value.name)
        lines.append(f"| `{value.name}` = {value.number} | {cell(text)} |")
    return lines + [""]


def service_lines(service, path, comments):
    lines = [f"### Service {service.name}", ""]
    if comments.texts.get(path):
        lines += [comments.texts[path], ""]
    lines += ["| call | takes | returns | |", "|---|---|---|---|"]
    for at, method in enumerate(service.method):
        what = comments.of(path + (METHODS, at), f"{service.name}.{method.name}")
        answer = ("stream of " if method.server_streaming else "") + link(method.output_type)
        lines.append(f"| `{method.name}` | {link(method.input_type)} | {answer} | {cell(what)} |")
    return lines + [""]


def file_lines(file):
    comments = Comments(file)
    lines = [f"## {file.name}", "", comments.of((SYNTAX,), file.name), ""]
    for at, service in enumerate(file.service):
        lines += service_lines(service, (SERVICES, at), comments)
    for at, enum in enumerate(file.enum_type):
        lines += enum_lines(enum, (ENUMS, at), comments)
    for at, message in enumerate(file.message_type):
        lines += message_lines(message, (MESSAGES, at), "", comments)
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descriptors", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args(arguments)
    files = descriptor_pb2.FileDescriptorSet.FromString(options.descriptors.read_bytes()).file
    lines = ["# Interface reference", "", "gRPC, package `stasis.v1`. Made from the comments in proto/; who may call what, and how "
             "processes reach each other, is in agent.md and schedd.md.", ""]
    try:
        for file in files:
            lines += file_lines(file)
    except MissingText as error:
        sys.exit(f"rpc_reference.py: {error}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
