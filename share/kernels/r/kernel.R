# hutch's R kernel. Driven by ../relay.py over descriptors 3 and 4; see ../README.md.
local({
  input <- file("/proc/self/fd/3", "rb", raw = TRUE)
  output <- file("/proc/self/fd/4", "wb", raw = TRUE)
  bytes_of <- function(s) charToRaw(enc2utf8(paste(s, collapse = "\n")))
  say <- function(...) {
    for (part in list(...)) writeBin(if (is.raw(part)) part else charToRaw(part), output)
    flush(output)
  }
  flush_all <- function() {
    flush(stdout())
    flush(stderr())
  }

  # ---- values ----
  json_string <- function(s) {
    s <- gsub("\\", "\\\\", enc2utf8(as.character(s)), fixed = TRUE)
    s <- gsub("\"", "\\\"", s, fixed = TRUE)
    s <- gsub("\n", "\\n", s, fixed = TRUE)
    s <- gsub("\r", "\\r", s, fixed = TRUE)
    s <- gsub("\t", "\\t", s, fixed = TRUE)
    s <- gsub("[[:cntrl:]]", "?", s)
    paste0("\"", vapply(s, ascii, ""), "\"")
  }
  ascii <- function(s) { # JSON in the protocol is ASCII
    code <- utf8ToInt(s)
    if (!length(code) || anyNA(code) || all(code < 128)) return(s)
    paste(vapply(code, function(k) {
      if (k < 128) intToUtf8(k)
      else if (k < 65536) sprintf("\\u%04x", k)
      else sprintf("\\u%04x\\u%04x", 55296 + (k - 65536) %/% 1024, 56320 + (k - 65536) %% 1024)
    }, ""), collapse = "")
  }
  json_vector <- function(v) {
    if (inherits(v, c("Date", "POSIXt"))) v <- format(v, if (inherits(v, "Date")) "%Y-%m-%d" else "%Y-%m-%dT%H:%M:%S")
    if (is.factor(v)) v <- as.character(v)
    text <- if (is.logical(v)) ifelse(v, "true", "false")
      else if (is.numeric(v)) ifelse(is.finite(v), vapply(v, function(x) format(x, digits = 15, trim = TRUE), ""), "null")
      else json_string(v)
    text[is.na(v)] <- "null"
    paste0("[", paste(text, collapse = ","), "]")
  }
  html_text <- function(s) gsub(">", "&gt;", gsub("<", "&lt;", gsub("&", "&amp;", as.character(s), fixed = TRUE), fixed = TRUE), fixed = TRUE)
  html_table <- function(d) {
    d <- utils::head(d, 60)
    cells <- vapply(d, function(v) paste0("<td>", html_text(format(v)), "</td>"), character(nrow(d)))
    dim(cells) <- c(nrow(d), ncol(d))
    rows <- paste0("<tr><th>", html_text(rownames(d)), "</th>", apply(cells, 1, paste, collapse = ""), "</tr>")
    paste0("<table><thead><tr><th></th>", paste0("<th>", html_text(names(d)), "</th>", collapse = ""), "</tr></thead><tbody>",
           paste(rows, collapse = ""), "</tbody></table>")
  }
  send_result <- function(main, parts) {
    message <- list(sprintf("result %d %d\n", as.integer(main), length(parts)))
    for (type in names(parts)) {
      value <- parts[[type]]
      raw <- is.raw(value)
      if (!raw) value <- bytes_of(value)
      message <- c(message, list(sprintf("%s %d%s\n", type, length(value), if (raw) " raw" else ""), value))
    }
    flush_all()
    do.call(say, message)
  }
  show_value <- function(value, main) {
    text <- utils::capture.output(print(value))
    pictures(FALSE)
    if (!length(text)) return(invisible())
    parts <- list("text/plain" = text)
    if (is.data.frame(value) && ncol(value) > 0 && nrow(value) > 0) {
      extra <- tryCatch(list("text/html" = html_table(value), "e2b/data" = paste0("{", paste0(json_string(names(value)), ":", vapply(value, json_vector, ""), collapse = ","), "}")),
                        error = function(e) list())
      parts <- c(parts, extra)
    }
    send_result(main, parts)
  }

  # ---- pictures: a device that writes numbered files, looked at when something was drawn ----
  folder <- NULL
  options(device = function(...) {
    folder <<- tempfile("plot")
    dir.create(folder)
    grDevices::png(file.path(folder, "%04d.png"), width = 640, height = 480, type = if (capabilities("cairo")) "cairo" else "Xlib")
  })
  pictures <- function(final) {
    if (is.null(folder) || !final) return(invisible())
    while (!is.null(grDevices::dev.list())) grDevices::dev.off()
    for (path in sort(list.files(folder, full.names = TRUE))) {
      size <- file.info(path)$size
      if (!is.na(size) && size > 0) send_result(FALSE, list("text/plain" = "<Plot with R graphics>", "image/png" = readBin(path, "raw", size)))
    }
    unlink(folder, recursive = TRUE)
    folder <<- NULL
  }

  # ---- cells ----
  send_error <- function(name, value, trace) {
    parts <- list(bytes_of(name), bytes_of(value), bytes_of(trace))
    flush_all()
    say(sprintf("error %d %d %d\n", length(parts[[1]]), length(parts[[2]]), length(parts[[3]])), parts[[1]], parts[[2]], parts[[3]])
  }
  calls_of <- function(calls) { # those of the cell: below our own eval, above the error's own machinery
    text <- vapply(calls, function(k) deparse(k, nlines = 1)[1], "")
    own <- which(startsWith(text, "eval(expressions[[i]]"))
    if (length(own)) text <- text[-seq_len(max(own))]
    text[!grepl("^(\\.handleSimpleError|h\\(|stop\\(|\\(function \\(e\\))", text)]
  }
  run_cell <- function(code) {
    trace <- character()
    tryCatch({
      expressions <- tryCatch(parse(text = code, keep.source = FALSE), error = function(e) stop(structure(class = c("ParseError", "error", "condition"), list(message = conditionMessage(e), call = NULL))))
      for (i in seq_along(expressions)) {
        got <- withCallingHandlers(withVisible(eval(expressions[[i]], globalenv())), error = function(e) trace <<- calls_of(sys.calls()))
        if (got$visible) {
          assign(".Last.value", got$value, envir = globalenv())
          show_value(got$value, i == length(expressions))
        }
      }
    }, interrupt = function(i) send_error("KeyboardInterrupt", "", "KeyboardInterrupt"),
    error = function(e) {
      call <- conditionCall(e)
      where <- if (is.null(call) || identical(call[[1]], as.name("eval"))) "" else paste0(" in ", deparse(call, nlines = 1)[1])
      send_error(if (inherits(e, "simpleError")) "Error" else class(e)[1], conditionMessage(e), c(paste0("Error", where, ": ", conditionMessage(e)), if (length(trace)) c("Traceback:", trace)))
    })
    tryCatch(pictures(TRUE), error = function(e) send_error("PlotError", conditionMessage(e), conditionMessage(e)))
  }
  options(warn = 1, width = 100)
  set_env <- function(values) do.call(Sys.setenv, as.list(values))

  step <- function() {
    head <- readLines(input, 1)
    if (!length(head)) quit("no")
    words <- strsplit(head, " ", fixed = TRUE)[[1]]
    numbers <- as.integer(words[-1])
    code <- rawToChar(readBin(input, "raw", numbers[1]))
    Encoding(code) <- "UTF-8"
    env <- character()
    for (i in seq_len(numbers[2])) {
      pair <- rawToChar(readBin(input, "raw", as.integer(readLines(input, 1))))
      name <- sub("=.*", "", pair)
      env[name] <- substring(pair, nchar(name) + 2)
    }
    if (words[1] == "adopt") {
      if (length(env)) set_env(env)
      suppressWarnings(rm(".Random.seed", envir = globalenv())) # drawn anew at its next use
      return(invisible())
    }
    kept <- Sys.getenv(names(env), unset = NA, names = TRUE)
    if (length(env)) set_env(env)
    tryCatch({
      say("begun\n")
      run_cell(code)
    }, interrupt = function(i) send_error("KeyboardInterrupt", "", "KeyboardInterrupt"))
    if (length(env)) {
      Sys.unsetenv(names(kept)[is.na(kept)])
      if (any(!is.na(kept))) set_env(kept[!is.na(kept)])
    }
    flush_all()
    tryCatch(say("done\n"), interrupt = function(i) say("done\n"))
  }
  say(sprintf("ready %s.%s\n", R.version$major, R.version$minor))
  repeat tryCatch(step(), interrupt = function(i) NULL) # one that came between cells
})
