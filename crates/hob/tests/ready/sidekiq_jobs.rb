# The jobs of sidekiq_app.rb, for its process and for the worker.

require "sidekiq"

url = "redis://127.0.0.1:#{ENV.fetch("SIDEKIQ_TEST_PORT")}/0"
Sidekiq.configure_client { |config| config.redis = {url: url} }
Sidekiq.configure_server { |config| config.redis = {url: url} }

class Add
  include Sidekiq::Worker

  def perform(a, b)
    a + b
  end
end

class Fails
  include Sidekiq::Worker

  def perform
    raise "expected"
  end
end

class FailsForever
  include Sidekiq::Worker
  sidekiq_options retry: 0

  def perform
    raise "expected"
  end
end

class Endless
  include Sidekiq::Worker

  def perform
    sleep
  end
end
