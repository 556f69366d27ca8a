"""bpf()."""
from attack import attack
from hutchtest import *


@attack("bpf")
def programs(t, a):
    r = a.both("""
        tryit("map", lambda: sc(321, 0, ctypes.c_char_p(struct.pack("IIIII", 1, 4, 4, 1, 0) + bytes(100)), 72))
        insn = struct.pack("<BBhi", 0xb7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)
        buf = ctypes.create_string_buffer(insn, 16)
        lic = ctypes.create_string_buffer(b"GPL")
        attr = struct.pack("<IIQQIIQII", 1, 2, ctypes.addressof(buf), ctypes.addressof(lic), 0, 0, 0, 0, 0) + bytes(80)
        tryit("prog", lambda: sc(321, 5, ctypes.c_char_p(attr), 72))
    """)
    a.judge(r, also=[k for k in r if k.endswith("as user")] if a.refused else ())
    a.alive()
