# Ruby in an isolate. Descriptors and records are those of driver.py; fork is
# src/zygote/zygote.c's and returns once per call, in the child.
HUTCH_LOADED = %w[json set date time bigdecimal bigdecimal/util securerandom digest digest/sha2 digest/md5 base64 erb ostruct stringio strscan
   forwardable delegate singleton observer tsort matrix prime pp prettyprint shellwords csv uri zlib openssl comparable monitor timeout
   cgi/util cgi/escape English abbrev benchmark optparse racc/parser ripper rational complex enumerator weakref].select do |name|
  require name
  true
rescue LoadError
  false
end.freeze

module HutchDriver
  NAME = "<program>"
  DEPTH = 200 # of a value, as the daemon takes it

  def self.send(kind, text)
    data = (kind + text).b
    data = data.byteslice(@result.syswrite(data)..) until data.empty?
  end

  def self.open_result
    @result = IO.for_fd(3, "wb", autoclose: false)
  end

  def self.fail(kind, error)
    at = (error.backtrace || []).map { |line| clean(line) }.reject { |line| line.start_with?("/run/driver") }
    type = clean(error.class.to_s)
    message = message_of(error)
    text = "#{at.first}: #{message} (#{type})\n" + at.drop(1).map { |line| "\tfrom #{line}\n" }.join
    send("E", JSON.generate({ kind: kind, type: type, message: message[0, 4096], traceback: kind == "exception" ? text[0, 16_384] : "" }))
  end

  def self.message_of(error)
    clean(error.message.to_s)
  rescue Exception # rubocop:disable Lint/RescueException -- the program's own method
    ""
  end

  def self.clean(text)
    text.dup.force_encoding("UTF-8").scrub
  end

  def self.value(request)
    binding = TOPLEVEL_BINDING
    binding.local_variable_set(:input, request["input"])
    value = binding.eval(request["code"], NAME, 1)
    return value unless request["function"]

    main = binding.receiver
    raise NameError, "the program defines no method '#{request["function"]}'" unless main.respond_to?(request["function"], true)

    main.__send__(request["function"], request["input"])
  end

  def self.read
    data = +""
    loop { data << $stdin.readpartial(1 << 20) } # read() would ask for the file's size first
  rescue EOFError
    $stdin = StringIO.new
    JSON.parse(data, max_nesting: DEPTH + 1)
  end

  # -> exit status
  def self.run
    result = value(read)
    begin
      send("V", JSON.generate(result, max_nesting: DEPTH))
      0
    rescue NoMemoryError => e
      fail("memory", e)
      1
    rescue StandardError => e
      fail("not_json", e)
      1
    end
  rescue SystemExit => e
    e.status
  rescue NoMemoryError => e
    fail("memory", e)
    1
  rescue Exception => e # rubocop:disable Lint/RescueException
    fail("exception", e)
    1
  end

  # In a method: what is local at the top would be the program's.
  def self.serve
    Process.ppid # the next fork is ours
    fork
    open_result
    $stdout.sync = $stderr.sync = true
    ARGV.clear
    $0 = NAME
    Process.ppid # from here on only what share/seccomp/isolate-call.profile lists; nothing of the caller's was read yet
    status = 1
    at_exit { exit!($!.is_a?(SystemExit) ? $!.status : status) } # the last: the program's own come before it
    status = run
  end
end

# Once through everything that would load something lazily.
JSON.generate({ "a" => [1, 2.5, nil] })
Time.at(0).localtime.to_s
"é".encode("UTF-16LE").encode("ISO-8859-1", "UTF-16LE").encode("Windows-1252", "ISO-8859-1")
SecureRandom.hex(4) if defined?(SecureRandom)
begin
  raise "x"
rescue StandardError
  $!.full_message(highlight: false)
end

# Nothing is looked for any more: it is there, or it is not.
module Kernel
  def require(name)
    return false if HUTCH_LOADED.include?(name.to_s.delete_suffix(".rb"))

    raise LoadError, "cannot load such file -- #{name} (nothing can be installed in an isolate)"
  end

  def require_relative(name) = require(name)
  def load(name, *) = require(name)
end
$LOAD_PATH.clear
ENV.clear
ENV["LANG"] = "C.UTF-8"
ENV["TZ"] = "UTC0" # "UTC" would be looked for in a file
Time.now.to_s
GC.start
GC.compact if GC.respond_to?(:compact)

HutchDriver.serve
