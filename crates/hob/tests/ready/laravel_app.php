<?php
// Laravel: cached values, a counter, tags, a lock, waiting, delayed, reserved and released jobs, and a session.

require '/usr/share/php/Illuminate/autoload.php';

use Illuminate\Cache\CacheManager;
use Illuminate\Cache\RateLimiter;
use Illuminate\Config\Repository;
use Illuminate\Container\Container;
use Illuminate\Queue\Connectors\RedisConnector;
use Illuminate\Queue\QueueManager;
use Illuminate\Redis\RedisManager;
use Illuminate\Session\SessionManager;

set_error_handler(function ($level, $message, $file, $line) {
    if (error_reporting() & $level & ~E_DEPRECATED & ~E_USER_DEPRECATED) {
        throw new ErrorException($message, 0, $level, $file, $line);
    }
});

class SendMail
{
    public $tries = 3;
    public $to;

    public function __construct($to)
    {
        $this->to = $to;
    }
}

function check($right, $what)
{
    if (!$right) {
        throw new Exception($what);
    }
}

// The settings of a new application, whose name is Laravel.
$server = ['host' => '127.0.0.1', 'port' => $argv[1], 'database' => 0];
$redis = ['options' => ['prefix' => 'laravel_database_'], 'default' => $server, 'cache' => $server];
$store = ['driver' => 'redis', 'connection' => 'cache', 'lock_connection' => 'default'];
$queue = ['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 90];
$app = new Container();
Container::setInstance($app);
$app['config'] = new Repository([
    'cache' => ['default' => 'redis', 'prefix' => 'laravel_cache', 'stores' => ['redis' => $store]],
    'queue' => ['default' => 'redis', 'connections' => ['redis' => $queue]],
    'session' => ['driver' => 'redis', 'lifetime' => 120, 'connection' => 'default', 'store' => null,
        'cookie' => 'laravel_session', 'encrypt' => false],
]);
$app->instance('redis', new RedisManager($app, 'phpredis', $redis));
$app->instance('cache', new CacheManager($app));

$cache = $app['cache']->store();
$cache->put('users.7', ['name' => 'Ann'], 600);
check($cache->get('users.7') === ['name' => 'Ann'], 'not cached');
$cache->forever('settings', ['theme' => 'dark']);
$cache->add('once', 'text', 60);
$cache->increment('hits');
$cache->remember('report', 3600, fn () => str_repeat('<html>', 1000));
$cache->putMany(['a' => 1, 'b' => 2.5], 60);
$cache->tags(['people', 'artists'])->put('John', 'value', 600);
$cache->tags(['people'])->forever('Anne', 'value');
check($cache->tags(['people', 'artists'])->get('John') === 'value', 'not cached with tags');
check($cache->lock('nightly', 120)->get(), 'no lock');
$cache->forever('illuminate:queue:restart', time());
(new RateLimiter($cache))->hit('login:10.0.0.1', 60);

$queues = new QueueManager($app);
$queues->addConnector('redis', fn () => new RedisConnector($app['redis']));
$jobs = $queues->connection();
foreach (['ann', 'bob', 'cid', 'dan'] as $name) {
    $jobs->push(new SendMail("$name@example.com"));
}
$jobs->push('App\Jobs\Report@handle', ['day' => '2025-11-16'], 'reports');
$jobs->later(3600, new SendMail('eve@example.com'));
// One job ends, one is released for later, and one stays with its worker.
$jobs->pop()->delete();
$jobs->pop()->release(60);
check($jobs->pop()->attempts() === 1, 'not reserved');
check($jobs->size() === 4, 'size');

$session = (new SessionManager($app))->driver();
$session->start();
$session->put('user', 7);
$session->save();
echo "done\n";
