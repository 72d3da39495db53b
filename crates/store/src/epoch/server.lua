-- Shared by scripts that must notice a server that has gone back to older data. The store handle appends the history of
-- the server to ARGV: the id of its process and, after a promotion, the point at which it became the master. It is ''
-- for the embedded engine, and for a server that does not permit INFO.
local server = table.remove(ARGV)

-- Whether this server, in its present history, wrote a value that names its writer. An hour after its last replica has
-- gone, a server forgets when it was promoted, so a history without a promotion matches every history of the process.
local function same_server(writer)
  return string.sub(writer or '', 1, #server) == server
end
