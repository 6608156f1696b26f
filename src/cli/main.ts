console.log('turntable');
