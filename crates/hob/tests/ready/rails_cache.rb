# RedisCacheStore of Rails: values of several types, counters, several values at once, expiry and a compressed value.

require "active_support"
require "active_support/core_ext/numeric/time"
require "active_support/cache"
require "active_support/cache/redis_cache_store"

cache = ActiveSupport::Cache::RedisCacheStore.new(
  url: "redis://127.0.0.1:#{ARGV.fetch(0)}/0", namespace: "cache", reconnect_attempts: 0,
  error_handler: ->(method:, returning:, exception:) { abort "#{method}: #{exception}" }
)
cache.write("user/7", {name: "Ann"})
abort "not cached" unless cache.read("user/7") == {name: "Ann"}
cache.write("views/products/7-20251116100000", "<html>" * 1000, expires_in: 1.hour, race_condition_ttl: 10.seconds)
cache.fetch("report", expires_in: 1.minute) { [1, 2.5, nil] }
cache.fetch("nothing") { nil }
cache.write("raw value", "text", raw: true, expires_in: 5.minutes)
3.times { cache.increment("hits") }
cache.increment("hits/hour", 2, expires_in: 1.hour)
cache.decrement("left")
cache.write_multi({"a" => 1, "b" => 2}, expires_in: 10.minutes)
cache.fetch_multi("b", "c") { |name| name * 2 }
cache.write(["posts", 7, {page: 2}], "an array as a key")
cache.write("long/" + "x" * 2000, "the key is shortened")
cache.write("gone", 1)
cache.delete("gone")
puts "done"
