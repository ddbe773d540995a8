-- Asks tollgate for a decision on a request: http-request lua.tollgate URL. See haproxy.cfg.
local TIMEOUT_MS = 200

-- Headers of the connection, and those that describe the request. Values of clients are replaced.
local own = {
  ["host"] = true, ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true,
  ["expect"] = true, ["upgrade"] = true, ["te"] = true,
  ["x-forwarded-method"] = true, ["x-forwarded-host"] = true, ["x-forwarded-uri"] = true,
  ["x-forwarded-for"] = true,
}

core.register_action("tollgate", { "http-req" }, function(txn, url)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not own[name] then
      headers[name] = {}
      for index = 0, #values do table.insert(headers[name], values[index]) end
    end
  end
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-host"] = { txn.f:req_hdr("host") or "" }
  headers["x-forwarded-uri"] = { txn.f:pathq() }
  -- Behind trusted proxies, put their X-Forwarded-For before the address, and set `trusted_hops`.
  headers["x-forwarded-for"] = { txn.f:src() }

  local answer = core.httpclient():get { url = url, headers = headers, timeout = TIMEOUT_MS }
  local retry_after = answer and answer.headers and answer.headers["retry-after"]
  txn:set_var("txn.tollgate_status", answer and answer.status or 0)
  txn:set_var("txn.tollgate_retry_after", retry_after and retry_after[0] or "1")
end, 1)
