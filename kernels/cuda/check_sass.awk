# Reads `cuobjdump -sass` and looks at every loop that multiplies: the matrix instructions it has,
# local memory, and of the products of few tokens what a weight costs. See check_sass.sh.
#
# Pipes of compute capability 8.6 and 8.7, warp instructions a clock and multiprocessor: 4 are
# issued; integer and logic ("ALU") 2; multiply-add, integer too ("FMA") 2; bit counts and
# conversions ("XU") 0.5; shared memory 1 access of 128 bytes.

function reset_function() {
    total = 0
    delete line
    delete target
    delete text
}

# What an instruction occupies. "@!PT" are never done, they only take an issue slot.
function pipe_of(code,    op) {
    sub(/^@!?U?P[0-9T]+ +/, "", code)
    op = code
    sub(/[ .].*/, "", op)
    if (op ~ /^(LDS|STS|ATOMS|LDGSTS|LDSM)$/) {
        return "shared"
    }
    if (op ~ /^(POPC|MUFU|I2F|F2I|FLO|BREV)$/) {
        return "xu"
    }
    if (op ~ /^(IMAD|FFMA|FMUL|FADD|FSEL)$/) {
        return "fma"
    }
    if (op ~ /^(LOP3|PRMT|SHF|IADD3|LEA|ISETP|SEL|IMNMX|VIMNMX|PLOP3|MOV|IABS|LOP|ISCADD|P2R|R2P|SGXT|BMSK|FSETP|FMNMX)$/) {
        return "alu"
    }
    return "other"
}

# 128-byte accesses to shared memory of a warp.
function accesses(code) {
    return code ~ /\.128/ ? 4 : code ~ /\.64/ ? 2 : 1
}

# "sparse 1x1 int4 8" for the kernels of products of few tokens, "producer sparse 1x1 int8 8" for
# those with a producer warp, "whole ..." for those of whole launches, else "".
function label_of(name,    kind, areas, tiles, maker) {
    if (match(name, /int[48]_(chunks|units|mixed)/) == 0) {
        return ""
    }
    kind = substr(name, RSTART, 4)
    if (name ~ /int8_mixed_chunks/) {
        return "sparse mixed " kind " 8"
    }
    maker = (name ~ /Lb1E/ ? "whole " : "") (name ~ /^fed_/ ? "producer " : "")
    tiles = name
    sub(/.*Li/, "", tiles)
    tiles += 0
    if (name ~ /_units/) {
        areas = 4
        if (match(name, /int8_unitsILi[234]/)) {
            areas = substr(name, RSTART + RLENGTH - 1, 1)
        }
        return maker "dense " areas "-bit " kind " " 8 * tiles
    }
    match(name, /espl_iebme_areas[0-9]/)
    areas = substr(name, RSTART + RLENGTH - 1, 1)
    return maker "sparse " \
           (areas == 0 ? "1x1" : areas == 1 ? "1x2" : areas == 3 ? "2x1" : "2x2") " " kind " " \
           8 * tiles
}

# Weights of a lane in one turn of the loop: a chunk of 16 x 512, a unit of 16 x 256.
function weights_of(label) {
    return label ~ /sparse/ ? 256 : 128
}

function fail(what) {
    printf "%-7s %s: %s\n", arch, label != "" ? label : name, what
    bad++
}

# Weights of 28672 x 8192 at 50 % zeros on an Orin: 16 multiprocessors at 1.3 GHz, 204.8 GB/s (153
# are reached by plain reads). Bits a weight, index and padding included.
function project(label,    words, i, bits, weights, clocks, time, what, binds) {
    split("1x1 3.32 1x2 3.86 2x1 3.86 2x2 4.26 4-bit 4 3-bit 3 2-bit 2", words)
    for (i = 1; i < 14; i += 2) {
        bits = index(label, words[i]) > 0 ? words[i + 1] : bits
    }
    weights = 28672 * 8192
    clocks = weights / 32 / 16 / 1.3e9 * 1e6
    time["issue"] = n_all / 4 * clocks
    time["ALU"] = n_alu / 2 * clocks
    time["FMA"] = n_fma / 2 * clocks
    time["XU"] = n_xu * 2 * clocks
    time["shared memory"] = n_accesses * clocks
    time["bytes"] = weights * bits / 8 / 204.8e9 * 1e6
    binds = "bytes"
    for (what in time) {
        binds = time[what] > time[binds] ? what : binds
    }
    printf "        Orin, us: issue %.0f, ALU %.0f, FMA %.0f, XU %.0f, shared memory %.0f; " \
           "bytes %.0f, at 153 GB/s %.0f. %s: %.0f\n", time["issue"], time["ALU"], time["FMA"],
           time["XU"], time["shared memory"], time["bytes"], time["bytes"] * 204.8 / 153, binds,
           time[binds]
}

# Counts of lines first to last, for a weight.
function count(first, last, weights,    i, pipe) {
    n_all = n_alu = n_fma = n_xu = n_shared = n_accesses = 0
    for (i = first; i <= last; i++) {
        n_all++
        if (text[i] ~ /^@!PT /) {
            continue
        }
        pipe = pipe_of(text[i])
        n_alu += pipe == "alu"
        n_fma += pipe == "fma"
        n_xu += pipe == "xu"
        n_shared += pipe == "shared"
        n_accesses += pipe == "shared" ? accesses(text[i]) : 0
    }
    n_all /= weights
    n_alu /= weights
    n_fma /= weights
    n_xu /= weights
    n_shared /= weights
    n_accesses /= weights
}

function look_at_loop(first, last,    j, products, local, kind, others) {
    for (j = first; j <= last; j++) {
        if (match(text[j], /IG?MMA[.0-9A-Zx]*/)) {
            products++
            if (kind == "") {
                kind = substr(text[j], RSTART, RLENGTH)
            }
            others += substr(text[j], RSTART, RLENGTH) != kind
        }
        local += text[j] ~ /(LDL|STL)/
    }
    loops++
    found++
    printf "%-7s %-40s %-18s %4d instructions, %3d products, %d local\n", arch,
           label != "" ? label : substr(name, 1, 40), kind, last - first + 1, products, local
    if (local > 0 || kind !~ /S8|S4/) {
        fail("local memory or no integer products in a main loop")
    }
    if (label ~ /int4/ && (kind !~ /^IMMA.16864.S4.S4/ || others > 0)) {
        fail("the INT4 matrix instruction is not what multiplies")
    }
    if (label !~ /(int4|int8) 8$/ || label ~ /mixed/) {
        return
    }
    count(first, last, weights_of(label))
    printf "        a weight: %.2f instructions, %.2f ALU, %.2f FMA, %.2f XU, %.2f shared memory\n",
           n_all, n_alu, n_fma, n_xu, n_shared
    if (arch == "sm_87") {
        project(label)
    }
    if (arch == "sm_87" && label ~ /1x1 int4/ && (n_alu > 1.15 || n_shared > 0.40)) {
        fail("more than 1.15 ALU or 0.40 shared memory instructions a weight")
    }
}

# Loops with products that have no such loop inside: a loop ends at a backward branch. Branches back
# from code far behind, where the assembler puts what is rare, would overlap with a loop before.
function finish(    i, j, k, first, products, ends, inner, work, hopper) {
    if (name == "" || total == 0) {
        return
    }
    found = 0
    ends = 0
    label = label_of(name)
    for (i = 0; i < total; i++) {
        work += text[i] ~ /(LDG|LDS|STG|STS|MMA)/
        if (target[i] == "" || !(target[i] in line) || line[target[i]] >= i) {
            continue
        }
        first = line[target[i]]
        products = 0
        for (j = first; j <= i; j++) {
            products += text[j] ~ /IG?MMA/ ? 1 : 0
        }
        inner = products > 0
        for (k = 0; k < ends; k++) {
            inner = inner && loop_end[k] < first ? 1 : 0
        }
        if (inner) {
            loop_end[ends++] = i
            look_at_loop(first, i)
        }
    }
    hopper = substr(arch, 4) + 0 >= 90
    if ((label ~ /int4/ && hopper) || (label ~ /producer/ && !hopper)) {
        empty++
        if (work > 0) {
            fail("code for an instruction that the architecture does not have")
        }
    } else if (label != "" && found == 0) {
        fail("no main loop found")
    }
}

/^arch = / { finish(); name = ""; arch = $3 }
/Function :/ {
    finish()
    name = $NF
    reset_function()
    if (match(name, /(dense|sparse)_kernelI.*E+v/)) {
        name = (name ~ /atom_args$/ ? "atom_" : name ~ /fed_sparse_kernelI/ ? "fed_" : "") substr(name, RSTART, RLENGTH - 1)
    }
}
match($0, /\/\*[0-9a-f]+\*\/ /) && /;/ {
    at = substr($0, RSTART + 2, RLENGTH - 5)
    sub(/^0+/, "", at)
    code = $0
    sub(/^[^*]*\*[0-9a-f]+\*\/ */, "", code)
    sub(/ *;.*/, "", code)
    sub(/ +[&?].*/, "", code) # some cuobjdumps say what an instruction waits for
    line[at] = total
    text[total] = code
    target[total] = ""
    if (code ~ /BRA/ && match(code, /0x[0-9a-f]+$/)) {
        target[total] = substr(code, RSTART + 2)
    }
    total++
}
END {
    finish()
    if (loops == 0) {
        print "check_sass: no loop with matrix instructions found"
        exit 1
    }
    printf "check_sass: %d loops, %d kernels without code, %d wrong\n", loops, empty, bad
    exit bad > 0 ? 1 : 0
}
