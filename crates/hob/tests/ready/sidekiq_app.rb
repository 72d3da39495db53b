# Sidekiq: processed, failed, dead, scheduled, waiting and running jobs, and a process with a heartbeat; the keys stay.

ENV["SIDEKIQ_TEST_PORT"] = ARGV.fetch(0)
require_relative "sidekiq_jobs"
require "sidekiq/api"

LIMIT = 120

def wait_until(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LIMIT
  until yield
    abort "no #{what} after #{LIMIT} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.05
  end
end

jobs = File.join(__dir__, "sidekiq_jobs.rb")
worker = spawn("sidekiq", "-r", jobs, "-c", "2", "-q", "default", "-q", "mail", out: File::NULL)
begin
  5.times { |n| Add.perform_async(n, n) }
  Add.set(queue: "mail").perform_async(1, 2)
  Sidekiq::Client.push_bulk("class" => Add, "args" => [[1, 1], [2, 2]])
  Fails.perform_async
  FailsForever.perform_async
  Add.perform_in(3600, 1, 2)
  wait_until("retry") { Sidekiq::RetrySet.new.size == 1 }
  wait_until("dead job") { Sidekiq::DeadSet.new.size == 1 }
  Endless.perform_async
  # The heartbeat writes the running jobs and the totals.
  wait_until("running job") { Sidekiq::Workers.new.size == 1 }
  wait_until("total") { Sidekiq::Stats.new.processed == 10 && Sidekiq::Stats.new.failed == 2 }
ensure
  # Its keys stay, as after a crash.
  Process.kill("KILL", worker)
  Process.wait(worker)
end
Sidekiq::ProcessSet.new.each(&:quiet!)
# Without a worker, jobs wait in their queues.
Add.perform_async(3, 4)
Add.set(queue: "mail").perform_async(5, 6)
puts "done"
