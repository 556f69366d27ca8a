<?php
// PHP in an isolate. Descriptors and records are those of driver.py; pcntl_fork
// is src/zygote/zygote.c's and returns once per call, in the child.
//
// The program's value is what it returns (`return …;` at the top). A program
// without any semicolon is one expression, and that is its value.

final class HutchDriver
{
    private const LEAVE = 0x48555400; // ZY_LEAVE of src/wire/zygote.h
    public static $result;
    public static bool $over = false;

    public static function send(string $kind, string $text): void
    {
        self::$over = true;
        for ($data = $kind . $text; $data !== ''; $data = substr($data, $n)) {
            $n = fwrite(self::$result, $data);
            if ($n === false || $n === 0) {
                return;
            }
        }
    }

    public static function fail(string $kind, string $type, string $message, string $trace): void
    {
        $flags = JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR;
        self::send('E', json_encode(['kind' => $kind, 'type' => $type, 'message' => substr($message, 0, 4096),
            'traceback' => substr($trace, 0, 16384)], $flags));
    }

    public static function thrown(Throwable $e): void
    {
        $line = strpos($e->getFile(), "eval()'d code") ? ' on line ' . $e->getLine() : '';
        $frames = [];
        foreach ($e->getTrace() as $at) {
            if (strpos($at['file'] ?? '', "eval()'d code")) {
                $frames[] = '  in ' . ($at['class'] ?? '') . ($at['type'] ?? '') . $at['function'] . '() called on line ' . ($at['line'] ?? '?');
            }
        }
        self::fail('exception', get_class($e), $e->getMessage(), get_class($e) . ': ' . $e->getMessage() . $line . "\n" . implode("\n", $frames));
    }

    // After what the program registered for its end.
    public static function leave(int $status): never
    {
        register_shutdown_function(static function () use ($status) {
            while (ob_get_level() > 0 && @ob_end_flush());
            fflush(STDOUT);
            fflush(STDERR);
            pcntl_alarm(self::LEAVE + $status);
        });
        exit($status);
    }

    // Fatal errors come this way, and exit().
    public static function onShutdown(): void
    {
        $e = error_get_last();
        if (self::$over || !$e || !($e['type'] & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR))) {
            return;
        }
        $memory = preg_match('/^(Allowed memory size|Out of memory)/', $e['message']);
        self::fail($memory ? 'memory' : 'exception', 'Error', $e['message'], '');
        self::leave(1);
    }

    public static function run(string $code, $input)
    {
        if (str_starts_with(ltrim($code), '<?')) {
            return eval('?>' . $code);
        }
        // outside of strings
        if (!preg_match('/[;{]/', preg_replace('/\'(?:[^\'\\\\]|\\\\.)*+\'|"(?:[^"\\\\]|\\\\.)*+"/s', '', $code) ?? ';')) {
            return eval("return $code\n;");
        }
        return eval($code);
    }
}

foreach ([json_encode(['a' => 1.5]), json_decode('{}', true), date('c', 0), random_int(0, 1), mb_or_not(), preg_match('/a/u', 'a'), hash('sha256', '')] as $_) {
    unset($_);
}
function mb_or_not(): bool { return function_exists('mb_strlen') && mb_strlen('é') === 1; }
gc_collect_cycles();

if (!function_exists('pcntl_fork')) {
    fwrite(STDERR, "Error: this PHP lacks pcntl\n");
    exit(1);
}
foreach (array_keys(getenv()) as $_) {
    putenv($_);
}
putenv('LANG=C.UTF-8');
putenv('TZ=UTC0');
unset($_);
pcntl_alarm(0); // the next fork is ours
pcntl_fork();
(static function () {
    HutchDriver::$result = fopen('php://fd/3', 'wb');
    stream_set_write_buffer(HutchDriver::$result, 0);
    register_shutdown_function([HutchDriver::class, 'onShutdown']);
    $_SERVER = $_ENV = [];
    $GLOBALS['argv'] = ['<program>'];
    $GLOBALS['argc'] = 1;
    pcntl_alarm(0); // from here on only what share/seccomp/isolate-call.profile lists; nothing of the caller's was read yet
    for ($data = ''; ($piece = fread(STDIN, 1 << 20)) !== '' && $piece !== false; $data .= $piece); // stream_get_contents() would ask for its size
    $request = json_decode($data, true);
    if (!$request) {
        HutchDriver::fail('exception', 'JsonException', 'PHP cannot read the input: ' . json_last_error_msg(), '');
        HutchDriver::leave(1);
    }
    unset($data, $piece);
    // a little below the kernel's limit, where PHP can still say what happened
    ini_set('memory_limit', (string) (int) ($request['memory'] * 0.9));
    try {
        $value = HutchDriver::run($request['code'], $request['input']);
        if ($request['function']) {
            if (!function_exists($request['function'])) {
                throw new Error("the program defines no function '{$request['function']}'");
            }
            $value = $request['function']($request['input']);
        }
    } catch (Throwable $e) {
        HutchDriver::thrown($e);
        HutchDriver::leave(1);
    }
    try {
        $text = json_encode($value, JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION);
        $why = json_last_error_msg();
    } catch (Throwable $e) { // of the program's own jsonSerialize()
        $text = false;
        $why = $e->getMessage();
    }
    if ($text === false) {
        HutchDriver::fail('not_json', get_debug_type($value), $why, '');
        HutchDriver::leave(1);
    }
    HutchDriver::send('V', $text);
    HutchDriver::leave(0);
})();
