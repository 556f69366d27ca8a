// A cell's text -> a script that can run again and again in one global scope.
//
// let, const and class become globals that a later cell may declare anew; imports become dynamic imports; a cell that
// awaits is wrapped in an async function, with its declarations left outside. Only the text around the changed places is
// touched, so positions in error messages stay close to the cell's.
import vm from "node:vm"
import { createRequire } from "node:module"

function loadAcorn() {
    const kept = process.emitWarning
    process.emitWarning = () => {}
    try {
        const source = process.binding("natives")["internal/deps/acorn/acorn/dist/acorn"]
        const module = { exports: {} }
        vm.runInThisContext("(function (exports, module) {" + source + "\n})", { filename: "acorn" })(module.exports, module)
        return module.exports
    } catch {
        return createRequire("/usr/share/nodejs/")("acorn")
    } finally {
        process.emitWarning = kept
    }
}
const acorn = loadAcorn()

function parse(code) {
    const options = { ecmaVersion: "latest", sourceType: "script", allowAwaitOutsideFunction: true, allowImportExportEverywhere: true, allowHashBang: true }
    try {
        return acorn.parse(code, options)
    } catch (e) {
        try {
            return acorn.parse(code, { ...options, sourceType: "module" })
        } catch {
            throw e
        }
    }
}

const isFunction = (n) => n.type === "FunctionDeclaration" || n.type === "FunctionExpression" || n.type === "ArrowFunctionExpression"

// Calls visit(node, parent, insideFunction) for every node.
function walk(node, visit, parent = null, inside = false) {
    visit(node, parent, inside)
    const deeper = inside || isFunction(node) || node.type === "StaticBlock" || node.type === "PropertyDefinition"
    for (const key in node) {
        const v = node[key]
        if (Array.isArray(v)) {
            for (const x of v) if (x && typeof x.type === "string") walk(x, visit, node, deeper)
        } else if (v && typeof v === "object" && typeof v.type === "string") {
            walk(v, visit, node, deeper)
        }
    }
}

function names(pattern, out) {
    switch (pattern?.type) {
        case "Identifier": out.push(pattern.name); break
        case "ObjectPattern": for (const p of pattern.properties) names(p.type === "RestElement" ? p.argument : p.value, out); break
        case "ArrayPattern": for (const p of pattern.elements) names(p, out); break
        case "AssignmentPattern": names(pattern.left, out); break
        case "RestElement": names(pattern.argument, out); break
    }
    return out
}

class Text {
    constructor(code) {
        this.code = code
        this.edits = []
    }
    replace(start, end, text) { this.edits.push({ start, end, text }) }
    // The range with the edits that lie in it. An edit that is a function renders parts of its own range, without itself.
    render(start, end) {
        let out = "", at = start
        const own = this.edits.filter((e) => !e.busy && e.start >= start && e.end <= end).sort((a, b) => a.start - b.start || b.end - a.end)
        for (const e of own) {
            if (e.start < at) continue // inside one that was replaced as a whole
            e.busy = true
            out += this.code.slice(at, e.start) + (typeof e.text === "function" ? e.text() : e.text)
            e.busy = false
            at = e.end
        }
        return out + this.code.slice(at, end)
    }
}

function importText(node, code) {
    const parts = [], whole = []
    for (const s of node.specifiers) {
        if (s.type === "ImportNamespaceSpecifier") whole.push(s.local.name)
        else if (s.type === "ImportDefaultSpecifier") parts.push("default: " + s.local.name)
        else parts.push((s.imported.type === "Literal" ? s.imported.raw : s.imported.name) + ": " + s.local.name)
    }
    const module = "await __hutch_import(" + code.slice(node.source.start, node.source.end) + ")"
    const statements = whole.map((name) => name + " = " + module)
    if (parts.length) statements.push("({" + parts.join(", ") + "} = " + module + ")")
    return ";" + (statements.length ? statements : [module]).join("; ") + ";"
}

// { code, awaits, shows }: a script; whether its value is a promise of [value]; whether that value is the cell's.
export function rewrite(code) {
    let tree
    const object = code.trim()
    if (object.startsWith("{") && !object.endsWith(";")) {
        try { // an object literal rather than a block
            tree = parse("(" + code + "\n)")
            code = "(" + code + "\n)"
        } catch { /* it was a block */ }
    }
    tree ??= parse(code)
    const text = new Text(code)
    let awaits = false
    walk(tree, (n, parent, inside) => {
        if (n.type === "ImportExpression") text.replace(n.start, n.start + "import".length, "__hutch_import")
        if (!inside && (n.type === "AwaitExpression" || (n.type === "ForOfStatement" && n.await) || n.type === "ImportDeclaration")) awaits = true
    })
    // `export` means nothing here: what it exports is declared, or is the value
    const body = tree.body.map((n) => {
        if (n.type === "ExportNamedDeclaration" && n.declaration) return { ...n.declaration, from: n.start }
        if (n.type === "ExportDefaultDeclaration") {
            const d = n.declaration
            return (isFunction(d) || d.type === "ClassDeclaration") && d.id ? { ...d, from: n.start } : { type: "ExpressionStatement", expression: d, start: n.start, end: n.end, from: n.start, bare: true }
        }
        if (n.type.startsWith("Export")) return { type: "EmptyStatement", start: n.start, end: n.end, from: n.start, bare: true }
        return n
    }).map((n) => ({ ...n, from: n.from ?? n.start }))
    const last = body[body.length - 1]
    const shows = last?.type === "ExpressionStatement"
    return awaits ? asynchronous(text, tree, body, last, shows) : synchronous(text, body, shows)
}

function synchronous(text, body, shows) {
    for (const n of body) {
        if (n.from !== n.start) text.replace(n.from, n.start, "")
        if (n.type === "VariableDeclaration" && n.kind !== "var") {
            text.replace(n.start, n.start + n.kind.length, "var")
            for (const d of n.declarations) if (!d.init) text.replace(d.end, d.end, " = undefined")
        } else if (n.type === "ClassDeclaration") {
            text.replace(n.start, n.start, "var " + n.id.name + " = ")
            text.replace(n.end, n.end, ";")
        } else if (n.bare) {
            text.replace(n.start, n.end, n.expression ? () => "(" + text.render(n.expression.start, n.expression.end) + ");" : "")
        }
    }
    return { code: text.render(0, text.code.length), awaits: false, shows }
}

function asynchronous(text, tree, body, last, shows) {
    const code = text.code, globals = [], outside = []
    const assign = (n) => n.declarations.map((d) => {
        names(d.id, globals)
        if (!d.init) return n.kind === "var" ? "" : text.render(d.id.start, d.id.end) + " = undefined"
        return "(" + text.render(d.id.start, d.id.end) + " = " + text.render(d.init.start, d.init.end) + ")"
    }).filter(Boolean).join(", ")
    for (const n of body) {
        if (n.type === "VariableDeclaration") {
            for (const d of n.declarations) names(d.id, globals)
            text.replace(n.from, n.end, () => ";" + assign(n) + ";")
        } else if (n.type === "FunctionDeclaration") {
            outside.push(text.render(n.start, n.end))
            text.replace(n.from, n.end, "")
        } else if (n.type === "ClassDeclaration") {
            globals.push(n.id.name)
            text.replace(n.from, n.start, "")
            text.replace(n.start, n.start, n.id.name + " = ")
            text.replace(n.end, n.end, ";")
        } else if (n.type === "ImportDeclaration") {
            for (const s of n.specifiers) globals.push(s.local.name)
            text.replace(n.start, n.end, importText(n, code))
        } else if (n === last && shows) {
            text.replace(n.from, n.end, () => ";return [(" + text.render(n.expression.start, n.expression.end) + "\n)];")
        } else if (n.bare) {
            text.replace(n.start, n.end, "")
        } else {
            nested(text, n, globals)
        }
    }
    const declared = [...new Set(globals)]
    const head = (declared.length ? "var " + declared.join(", ") + ";" : "") + outside.join(" ") + ";(async () => {"
    return { code: head + text.render(0, code.length) + "\n})()", awaits: true, shows }
}

// `var` in a block or loop of an awaiting cell is a global too.
function nested(text, statement, globals) {
    walk(statement, (n, parent, inside) => {
        if (inside || n.type !== "VariableDeclaration" || n.kind !== "var") return
        for (const d of n.declarations) names(d.id, globals)
        const loop = parent && (parent.init === n || parent.left === n)
        const rest = n.declarations[0].start
        if (loop) {
            text.replace(n.start, rest, "")
        } else {
            text.replace(n.start, n.end, () => n.declarations.filter((d) => d.init)
                .map((d) => "(" + text.render(d.id.start, d.id.end) + " = " + text.render(d.init.start, d.init.end) + ")").join(", ") + ";")
        }
    })
}
