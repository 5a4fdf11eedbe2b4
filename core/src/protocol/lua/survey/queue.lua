-- Reads the waiters in the queues of a lock whose clients are alive, each queue in its order. Changes nothing.
-- KEYS  clients that are alive, then the queues
-- ARGV  1 how many entries of each queue to read at most
-- reply {this node's time in µs, then for each waiter: number of its queue from 1, ticket, entry, the time in µs until
--       which its client's places count}
local now, micros = clock()
local reply = { micros }
for number = 2, #KEYS do
  local entries = redis.call('ZRANGE', KEYS[number], 0, ARGV[1] - 1, 'WITHSCORES')
  for at = 1, #entries, 2 do
    local client = client_of(entries[at])
    local alive_until = client and redis.call('ZSCORE', KEYS[1], client)
    if alive_until and tonumber(alive_until) > now then
      for _, part in ipairs({ number - 1, entries[at + 1], entries[at], alive_until }) do reply[#reply + 1] = part end
    end
  end
end
return reply
