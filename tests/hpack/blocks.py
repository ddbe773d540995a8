"""Header blocks by Python's package hpack.

`write CONNECTIONS BLOCKS` prints random blocks and their fields; `read` decodes such lines and fails at the first block that has
other fields. Lines: `connection` begins a connection, `table BYTES` changes the maximum size of its table, `block HEX
NAME=VALUE,NAME=VALUE...` is a block and its fields, names and values in hexadecimal.
"""

import random
import sys

import hpack

NAMES = [b":path", b":status", b"user-agent", b"authorization", b"cookie", b"grpc-timeout", b"x-a", b"x-b"]
VALUES = [b"", b"/", b"200", b"a", b"b", b"1S"]


def octets(length):
    return random.choice([random.randbytes, lambda n: bytes(random.choices(b"abcdefghijklmnop-0123456789", k=n))])(length)


def field():
    name = random.choice(NAMES) if random.random() < 0.7 else octets(random.randrange(40))
    value = random.choice(VALUES) if random.random() < 0.4 else octets(random.choice([5] * 20 + [40] * 20 + [300] * 5 + [4000]))
    kind = hpack.NeverIndexedHeaderTuple if random.random() < 0.1 else hpack.HeaderTuple
    return kind(name, value)


def write(connections, blocks):
    random.seed(7541)
    for _ in range(connections):
        print("connection")
        encoder = hpack.Encoder()
        for _ in range(blocks):
            # If a size equals the previous one, the package writes none of the pending updates.
            sizes = random.sample([0, 40, 100, 200, 500, 1000, 4096], random.choice([0, 0, 0, 1, 2]))
            if encoder.header_table_size not in sizes:
                for size in sizes:
                    encoder.header_table_size = size
            fields = [field() for _ in range(random.randrange(8))]
            block = encoder.encode(fields, huffman=random.random() < 0.7)
            print("block", block.hex(), ",".join(f"{name.hex()}={value.hex()}" for name, value in fields))


def read():
    blocks = 0
    for line in sys.stdin.readlines():
        kind, *rest = line.rstrip("\n").split(" ")
        if kind == "connection":
            decoder = hpack.Decoder(max_header_list_size=1 << 20)
        elif kind == "table":
            decoder.max_allowed_table_size = int(rest[0])
        else:
            block, fields = rest
            fields = [tuple(map(bytes.fromhex, pair.split("="))) for pair in fields.split(",")]
            assert list(decoder.decode(bytes.fromhex(block), raw=True)) == fields, line
            blocks += 1
    print(blocks, "blocks")


if sys.argv[1] == "write":
    write(int(sys.argv[2]), int(sys.argv[3]))
else:
    read()
