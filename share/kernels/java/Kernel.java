// hutch's Java kernel: JShell in this very JVM. Driven by ../relay.py over descriptors 3 and 4; see ../README.md.

import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;

public class Kernel {
    static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*", "java.util.function.*",
        "java.util.regex.*", "java.util.stream.*"};
    static InputStream in;
    static OutputStream out;
    static JShell shell;
    static volatile boolean running, interrupted;

    // ---- the control stream ----
    static synchronized void say(byte[]... parts) {
        try {
            ByteArrayOutputStream b = new ByteArrayOutputStream();
            for (byte[] p : parts) b.write(p);
            out.write(b.toByteArray());
        } catch (IOException e) {
            Runtime.getRuntime().halt(0);
        }
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    static void error(String name, String value, String trace) {
        byte[] n = bytes(name), v = bytes(value == null ? "" : value), t = bytes(trace);
        say(bytes("error " + n.length + " " + v.length + " " + t.length + "\n"), n, v, t);
    }

    // What the code prints stays in the pieces in which it was printed.
    static PrintStream printer(String stream) {
        OutputStream to = new OutputStream() {
            @Override public void write(int b) {
                write(new byte[] {(byte) b}, 0, 1);
            }

            @Override public void write(byte[] b, int off, int len) {
                byte[] part = new byte[len];
                System.arraycopy(b, off, part, 0, len);
                say(bytes("out " + stream + " " + len + "\n"), part);
            }
        };
        return new PrintStream(to, true, StandardCharsets.UTF_8) { }; // a subclass: println is then a text and a newline
    }

    static String line() throws IOException {
        ByteArrayOutputStream b = new ByteArrayOutputStream();
        for (int c; (c = in.read()) != '\n';) {
            if (c < 0) Runtime.getRuntime().halt(0);
            b.write(c);
        }
        return b.toString(StandardCharsets.UTF_8);
    }

    static String text(int n) throws IOException {
        return new String(in.readNBytes(n), StandardCharsets.UTF_8);
    }

    // ---- cells ----
    static boolean shown(Snippet s) {
        return s.kind() == Snippet.Kind.EXPRESSION || s.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
    }

    static String trace(String name, String message, StackTraceElement[] stack) {
        StringBuilder b = new StringBuilder(name + (message == null ? "" : ": " + message));
        for (StackTraceElement e : stack) {
            String c = e.getClassName();
            if (c.startsWith("jdk.jshell") || c.startsWith("java.base/jdk.internal.reflect") || c.startsWith("jdk.internal.reflect")) break;
            b.append("\n    at ").append(c.startsWith("REPL.") ? e.getMethodName() + " (cell:" + e.getLineNumber() + ")" : e.toString());
        }
        return b.toString();
    }

    static boolean failed(JShellException e) {
        if (e instanceof EvalException) {
            EvalException v = (EvalException) e;
            String name = v.getExceptionClassName();
            error(name.substring(name.lastIndexOf('.') + 1), v.getMessage(), trace(name, v.getMessage(), v.getStackTrace()));
        } else {
            String what = e instanceof UnresolvedReferenceException ? "not yet defined: " + ((UnresolvedReferenceException) e).getSnippet().name() : e.getMessage();
            error("UnresolvedReference", what, "UnresolvedReference: " + what);
        }
        return true;
    }

    static boolean rejected(Snippet s) {
        List<String> messages = new ArrayList<>();
        shell.diagnostics(s).forEach(d -> messages.add(d.getMessage(Locale.ENGLISH)));
        String first = messages.isEmpty() ? "rejected" : messages.get(0).lines().findFirst().orElse("rejected");
        error("CompilationError", first, "CompilationError: " + String.join("\n", messages) + "\n" + s.source());
        return true;
    }

    static void run(String code) {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String rest = code;
        while (!rest.isBlank()) {
            SourceCodeAnalysis.CompletionInfo part = analysis.analyzeCompletion(rest);
            if (part.completeness() == SourceCodeAnalysis.Completeness.EMPTY) return;
            String source = part.source() == null ? rest : part.source();
            rest = part.source() == null ? "" : part.remaining();
            String value = null;
            if (interrupted) return;
            for (SnippetEvent e : shell.eval(source)) {
                if (e.causeSnippet() != null) continue;
                if (interrupted) return;
                if (e.exception() != null && failed(e.exception())) return;
                if (e.status() == Snippet.Status.REJECTED && rejected(e.snippet())) return;
                if (shown(e.snippet())) value = e.value();
            }
            if (interrupted) return;
            if (value != null && !value.isEmpty() && rest.isBlank()) {
                byte[] v = bytes(value);
                say(bytes("result 1 1\ntext/plain " + v.length + "\n"), v);
            }
        }
    }

    static void cell() throws IOException {
        String[] head = line().split(" ");
        String code = text(Integer.parseInt(head[1]));
        Map<String, String> kept = new HashMap<>();
        boolean adopt = head[0].equals("adopt");
        for (int i = Integer.parseInt(head[2]); i > 0; i--) {
            String[] pair = text(Integer.parseInt(line())).split("=", 2);
            kept.put(pair[0], System.getProperty(pair[0]));
            System.setProperty(pair[0], pair[1]);
        }
        if (adopt) return; // what was set stays
        interrupted = false;
        running = true;
        say(bytes("begun\n"));
        try {
            run(code);
        } catch (Throwable t) {
            error(t.getClass().getSimpleName(), t.getMessage(), t.toString());
        }
        running = false;
        if (interrupted) error("KeyboardInterrupt", "", "KeyboardInterrupt");
        System.out.flush();
        System.err.flush();
        kept.forEach((k, v) -> {
            if (v == null) System.clearProperty(k);
            else System.setProperty(k, v);
        });
        say(bytes("done\n"));
    }

    public static void main(String[] args) throws Exception {
        in = new java.io.BufferedInputStream(new FileInputStream("/proc/self/fd/3"));
        out = new FileOutputStream("/proc/self/fd/4");
        System.setOut(printer("stdout"));
        System.setErr(printer("stderr"));
        System.getenv().forEach((k, v) -> { // an environment cannot change in a JVM; properties can
            if (System.getProperty(k) == null) System.setProperty(k, v);
        });
        shell = JShell.builder().executionEngine("local").build();
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), s -> {
            interrupted = running;
            while (running && interrupted) { // again, if it came between two snippets
                shell.stop();
                try {
                    Thread.sleep(100);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        for (String name : IMPORTS) shell.eval("import " + name + ";");
        say(bytes("ready " + System.getProperty("java.version") + "\n"));
        while (true) cell();
    }
}
